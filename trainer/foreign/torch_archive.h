// The files of torch.save since PyTorch 1.6: a zip whose members are stored, not compressed, with
// NAME/data.pkl and a member NAME/data/KEY for each storage.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/pickle/pickle.h"
#include "base/unique_fd.h"

namespace dslaunch {

// A tensor of an archive. Its bytes are [begin, begin + bytes) of the file, where `begin` is its
// first element; elements are at multiples of `stride`, which is empty if they are row-major
// without gaps.
struct ArchivedTensor {
  std::string dtype;  // as in safetensors: "F32", "BF16"
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

// Reads a file that is not trusted. Every offset and size is checked against the file and the
// storage before it is used. Reads only the zip's directory and data.pkl; tensors stay in the file.
// Errors are TrainError kBadInput or kIo, and name the file and the value.
class TorchArchive {
 public:
  // Opens the archive in bytes [begin, begin + size) of the file; `size` 0: to its end.
  explicit TorchArchive(const std::string& path, uint64_t begin = 0, uint64_t size = 0);

  const std::string& path() const { return path_; }
  PickleValue root() const { return pickle_->root(); }
  // Returns the tensor that `value` is (also as a Parameter or within _rebuild_from_type_v2);
  // nullopt if it is none. Offsets are into the whole file. kBadInput if it is an impossible one:
  // elements outside of the storage, a negative stride, a storage of another size than its member.
  std::optional<ArchivedTensor> Tensor(PickleValue value) const;

 private:
  struct Member {
    uint64_t begin = 0;  // bytes into the file
    uint64_t bytes = 0;
  };
  std::string path_;
  std::map<std::string, Member, std::less<>> members_;  // names without the archive's own name
  std::optional<Pickle> pickle_;
};

// Whether the file begins as such an archive; false if it cannot be read.
bool IsTorchArchive(const std::string& path);

}  // namespace dslaunch
