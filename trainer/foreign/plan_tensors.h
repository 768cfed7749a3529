// Adds tensors and files to the plan of a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/foreign/archive/torch_archive.h"
#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Adds a place to the plan and returns its key, which is also TensorSlice::file. Equal places have
// the same key.
std::string AddPlace(BytesInFile place, ForeignCheckpoint* plan);

// A run of elements that is contiguous both in a row-major tensor and in a file.
struct Piece {
  std::string path;
  uint64_t begin = 0;  // offset of the first element in the file, in bytes
  int64_t elements = 0;
};

// Adds a tensor that consists of `pieces`, in order. Precondition: the pieces together have as many
// elements as `shape`, and no two pieces begin at the same byte of a file. `dtype` is the dtype's
// name in safetensors files.
void AddPieces(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
               const std::vector<Piece>& pieces, ForeignCheckpoint* plan);

// Adds a tensor whose elements are all in `tensor`, a tensor of the archive at `path`.
void AddWhole(const std::string& name, const std::string& path, const ArchivedTensor& tensor,
              ForeignCheckpoint* plan);

// Adds a file of the checkpoint's folder, with its size, to the manifest. Throws kIo if the size
// cannot be read.
void AddFile(const std::string& name, ForeignCheckpoint* plan);

}  // namespace dslaunch
