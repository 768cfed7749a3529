// Reads the files of torch.save since PyTorch 1.6: a zip whose members are stored, not compressed,
// with NAME/data.pkl and a member NAME/data/KEY for each storage.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/pickle/pickle.h"
#include "trainer/base/input_file.h"

namespace dslaunch {

// A tensor of an archive, stored in bytes [begin, begin + bytes) of the file. `begin` is the offset
// of the first element. `stride`, in elements, is empty if the elements are row-major without gaps.
struct ArchivedTensor {
  std::string dtype;  // dtype's name in safetensors files, such as "F32" or "BF16"
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

// Reads a file that is not trusted. Checks every offset and size against the file and the storage
// before using it. Reads only the zip's directory, the members' headers and data.pkl; tensors stay
// in the file. Throws TrainError kBadInput or kIo, naming the file and the value. Refuses
// compressed or encrypted members, more than 10^6 members, two members of the same name,
// overlapping members, and names that leave a folder.
class TorchArchive {
 public:
  // Opens the archive in bytes [begin, begin + size) of the file. If `size` is 0, the archive ends
  // with the file.
  explicit TorchArchive(const std::string& path, uint64_t begin = 0, uint64_t size = 0);

  const std::string& path() const { return file_.path(); }
  PickleValue root() const { return pickle_->root(); }
  // Returns `value` as a tensor, also if it is a Parameter or within _rebuild_from_type_v2; nullopt
  // if it is something else. Offsets are relative to the whole file. Throws kBadInput for a dtype
  // that safetensors does not have, elements outside of the storage, a negative stride, a storage
  // whose size differs from its member's, and a tensor of more than 16 MiB that repeats elements of
  // the storage.
  std::optional<ArchivedTensor> Tensor(PickleValue value) const;

 private:
  struct Member {
    uint64_t begin = 0;  // offset of the content in the file, in bytes
    uint64_t bytes = 0;
  };
  struct Storage {
    std::string dtype;  // empty if the storage is untyped
    Member member;
  };
  [[noreturn]] void Fail(const std::string& problem) const;
  // Reads the zip's directory, which is in bytes [begin, end) of the file, into `members_`.
  void ReadMembers(uint64_t begin, uint64_t end);
  std::string ReadMember(std::string_view name, uint64_t max_bytes) const;
  Storage StorageOf(PickleValue reference) const;

  InputFile file_;
  // The members, keyed by name without the archive's own name ("data.pkl" for "NAME/data.pkl").
  std::map<std::string, Member, std::less<>> members_;
  std::optional<Pickle> pickle_;
};

// Returns the numbers of a torch.Size, a tuple or a list. Returns nullopt for other values, for a
// negative number and for more than 64 numbers.
std::optional<std::vector<int64_t>> SizesIn(std::optional<PickleValue> value);

// Returns whether the file begins like an archive of torch.save; false if the file cannot be read.
bool IsTorchArchive(const std::string& path);

}  // namespace dslaunch
