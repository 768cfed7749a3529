// Reads tensors of a checkpoint in blocks, so that none must be whole in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "trainer/checkpoint/state.h"

namespace dslaunch {

// The largest number of elements of a block: 32 MiB in the widest format.
inline constexpr int64_t kBlockElements = int64_t{4} << 20;

// Returns the elements [start, stop) of a tensor of the checkpoint as one row, rounded to `dtype`.
// Throws the errors of StoredTensors::Fill.
at::Tensor ReadBlock(StoredTensors& stored, const TensorRecord& tensor, at::ScalarType dtype,
                     int64_t start, int64_t stop);

// Calls use(start, stop) for consecutive blocks of `elements` elements.
void ForEachBlock(int64_t elements, const std::function<void(int64_t start, int64_t stop)>& use);

// Returns the dtype of a tensor. Throws kBadInput, naming checkpoint and tensor, for one that the
// trainer does not support.
at::ScalarType SupportedType(const Checkpoint& checkpoint, const TensorRecord& tensor);

}  // namespace dslaunch
