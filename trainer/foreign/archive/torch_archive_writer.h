// Writes files in the format of torch.save, so that torch.load(weights_only=True) can read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/pickle/pickle_writer.h"
#include "trainer/base/durable_file.h"
#include "trainer/foreign/archive/zip_writer.h"

namespace dslaunch {

// The pickled object that torch.load returns. The bytes of its tensors are written later
// (TorchArchiveWriter).
class ArchivedObject : public PickleWriter {
 public:
  // Writes a tensor as the next value. `dtype` is the dtype's name in safetensors files ("F32").
  // Precondition: `dtype` is in kTorchDtypes, and the tensor has less than 2^63 bytes.
  void Tensor(const std::string& dtype, const std::vector<int64_t>& shape);
  const std::vector<uint64_t>& tensor_bytes() const { return tensor_bytes_; }

 private:
  // The size of each tensor in bytes, in the order of the calls of Tensor().
  std::vector<uint64_t> tensor_bytes_;
};

// Writes an archive at the end of `file`, which must outlive this object. Accepts tensors in blocks
// of any size, so that no tensor has to be in memory as a whole. Throws TrainError kIo, naming the
// file, if it cannot be written.
class TorchArchiveWriter {
 public:
  // Writes everything except the tensors. `name` is the name of the folder inside the archive;
  // PyTorch uses the file's name.
  TorchArchiveWriter(NewFile& file, const std::string& name, ArchivedObject object);
  // Writes the next bytes of the tensors. Pass the tensors in row-major order, and in the order of
  // their Tensor() calls.
  void Write(const void* data, size_t bytes);
  // Completes the archive and returns its size in bytes. Precondition: all bytes of the tensors are
  // written.
  uint64_t Finish();

 private:
  void BeginTensor();

  ZipWriter zip_;
  std::string name_;
  std::vector<uint64_t> tensor_bytes_;
  size_t begun_ = 0;  // number of tensors whose members have been begun
};

}  // namespace dslaunch
