// Reads and writes the safetensors format: 8 bytes of header length (little-endian), a JSON header,
// then the bytes of the tensors in row-major order, one after the other without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/shard.h"
#include "trainer/base/durable_file.h"
#include "trainer/base/input_file.h"

namespace dslaunch {

// Maximum size in bytes of a header that is read, enough for about 100,000 tensors. The format
// allows 100 MB.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 16u << 20;

// Returns the size in bytes of one element of "F32", "BF16", "I64" and so on; nullopt for an
// unknown name.
std::optional<size_t> DtypeBytes(const std::string& dtype);

// Returns the number of elements; nullopt if a dimension is negative or there are more than 2^63 -
// 1 elements.
std::optional<int64_t> NumElements(const std::vector<int64_t>& shape);

struct TensorHeader {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
};

// Returns the size of the tensor in bytes. Precondition: the dtype is known and the shape is valid.
uint64_t BytesOf(const TensorHeader& tensor);

// Writes a new file in pieces, so that memory need not hold a whole tensor. `metadata` is for other
// programs; SafetensorsFile ignores it. Throws kIo if the file exists or cannot be written.
class NewSafetensorsFile {
 public:
  NewSafetensorsFile(const std::string& path, const std::vector<TensorHeader>& tensors,
                     const std::map<std::string, std::string>& metadata = {});
  // Appends bytes of the tensors, in the order of the header and without gaps.
  void Write(const void* data, size_t bytes);
  // Waits until the file is on the disk, and returns its size and checksum. Precondition: all bytes
  // of all tensors are written.
  FileSum Finish();

 private:
  NewFile file_;
  uint64_t unwritten_bytes_ = 0;
};

struct TensorBytes {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // bytes of the tensor, not owned; shape and dtype determine the size
};

// Writes all tensors to a new file. Throws kIo if the file exists or cannot be written.
FileSum WriteSafetensors(const std::string& path, const std::vector<TensorBytes>& tensors,
                         const std::map<std::string, std::string>& metadata = {});

// Reads a file that is not trusted. Checks every length against the size of the file before using
// it. Throws TrainError kBadInput or kIo, naming the file. Refuses all files that the format's own
// library (safetensors 0.8) refuses, and these:
//   a header of more than kMaxSafetensorsHeaderBytes, or with a space before its {
//   the same key twice, which the format forbids; more than 64 levels
//   formats that DtypeBytes does not know; an entry with other keys than the format's three
//   more than 2^63 - 1 elements or bytes, also in a partial product of a shape that contains 0
class SafetensorsFile {
 public:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    uint64_t begin = 0;  // offset of the tensor in the file, in bytes
    uint64_t end = 0;
  };

  explicit SafetensorsFile(std::string path);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // Reads a whole tensor into `out`, which has end - begin bytes.
  void Read(const Tensor& tensor, void* out) const;
  // Reads `bytes` bytes of a tensor, beginning with byte `first` of the tensor. Throws kInternal if
  // the range is not inside the tensor.
  void Read(const Tensor& tensor, uint64_t first, size_t bytes, void* out) const;
  // Reads the elements that `stored` and `wanted`, two shards of the same whole tensor, have in
  // common. `tensor` has the elements of `stored`. `out` has room for the elements of `wanted`, in
  // their order; its other elements are not changed. Short gaps between the elements are read too,
  // but not stored.
  void Read(const Tensor& tensor, const Shard& stored, const Shard& wanted, void* out) const;

 private:
  [[noreturn]] void Fail(const std::string& problem) const;
  // Throws kInternal unless the bytes [first, first + bytes) are inside the tensor.
  void CheckInside(const Tensor& tensor, uint64_t first, uint64_t bytes) const;
  void ParseHeader(const std::string& header, uint64_t data_begin, uint64_t file_bytes);

  InputFile file_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace dslaunch
