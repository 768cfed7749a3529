// Adds tensors to a plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/foreign/archive/torch_archive.h"
#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Adds a place and returns its key (TensorSlice::file). Equal places have the same key.
std::string AddPlace(BytesInFile place, ForeignCheckpoint* plan);

// Elements that are contiguous both in a row-major tensor and in a file.
struct Piece {
  std::string path;
  uint64_t begin = 0;  // offset in the file, in bytes
  int64_t elements = 0;
};

// Adds a tensor that consists of `pieces`, in order. Precondition: together they have as many
// elements as `shape`, and no two begin at the same byte of a file.
void AddPieces(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
               const std::vector<Piece>& pieces, ForeignCheckpoint* plan);

// Adds a tensor that is a whole tensor of the archive at `path`.
void AddWhole(const std::string& name, const std::string& path, const ArchivedTensor& tensor,
              ForeignCheckpoint* plan);

// Adds a file of the checkpoint's folder to the manifest, with its size. kIo.
void AddFile(const std::string& name, ForeignCheckpoint* plan);

}  // namespace dslaunch
