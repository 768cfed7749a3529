// Reads tensors of a checkpoint in blocks, so that memory need not hold a whole tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/checkpoint/state.h"

namespace dslaunch {

// Maximum number of elements in a block, which take 32 MiB in the widest dtype.
inline constexpr int64_t kBlockElements = int64_t{4} << 20;

// Returns the elements [start, stop) of a tensor of the checkpoint in one dimension, rounded to
// `dtype`. Throws kBadInput, naming the tensor, if its numbers cannot be rounded to `dtype`, and
// kIo if a file cannot be read.
at::Tensor ReadBlock(StoredTensors& stored, const TensorRecord& tensor, at::ScalarType dtype,
                     int64_t start, int64_t stop);

// Reads the elements [start, stop) into `bytes`, which is resized, in the saved dtype. LibTorch
// need not support that dtype.
void ReadBlock(StoredTensors& stored, const TensorRecord& tensor, int64_t start, int64_t stop,
               std::vector<char>& bytes);

// Calls use(start, stop) for consecutive blocks that together contain `elements` elements.
void ForEachBlock(int64_t elements, const std::function<void(int64_t start, int64_t stop)>& use,
                  int64_t block_elements = kBlockElements);

}  // namespace dslaunch
