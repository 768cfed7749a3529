// Writes checkpoints in the format of torch.distributed.checkpoint, so that dcp.load and
// dcp_to_torch_save can read them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/checkpoint/manifest.h"

namespace dslaunch {

// Reads the elements [start, stop) of a tensor of the manifest into `out`, in row-major order and
// in the dtype of the tensor's record. `out` has room for these elements.
using ReadElements =
    std::function<void(const TensorRecord& tensor, int64_t start, int64_t stop, void* out)>;

// Writes the folder `out`, which must not exist, with one file of tensors and `.metadata`. A weight
// NAME becomes "model.NAME", and optimizer state becomes "optimizer.state.NAME.KIND" with the
// number of updates as "optimizer.state.NAME.step". These are the state dicts of get_state_dict, at
// "model" and "optimizer". The checkpoint has no settings of the optimizer (param_groups), so a
// program that asks for them must load with DefaultLoadPlanner(allow_partial_load=True). Other
// state, such as that of random numbers, is not written. Calls `progress` with the bytes of tensors
// written so far and the bytes of all tensors. Holds 64 MiB of a tensor at a time. Throws kIo if a
// file cannot be written, and passes on the exceptions of `read`.
void WriteDistributed(const Manifest& manifest, const ReadElements& read, const std::string& out,
                      const std::function<void(uint64_t done, uint64_t all)>& progress);

}  // namespace dslaunch
