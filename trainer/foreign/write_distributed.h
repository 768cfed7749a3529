// Writes a checkpoint as torch.distributed.checkpoint does, so that dcp.load and
// dcp_to_torch_save read it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/checkpoint/manifest.h"

namespace dslaunch {

// Reads the elements [start, stop) of a tensor of the manifest, in row-major order and in the dtype
// of its record, into `out`, which has room for them.
using ReadElements =
    std::function<void(const TensorRecord& tensor, int64_t start, int64_t stop, void* out)>;

// Writes the folder `out`, which must not exist, with one file of tensors and `.metadata`. A weight
// NAME becomes "model.NAME", the optimizer's state "optimizer.state.NAME.KIND" with the number of
// updates as "optimizer.state.NAME.step": the state dicts of get_state_dict, at "model" and
// "optimizer". A checkpoint has no settings of the optimizer (param_groups), so a program that asks
// for them loads with DefaultLoadPlanner(allow_partial_load=True). The state of other things, such
// as random numbers, is not written. `progress` is called with the bytes of tensors that are
// written and their sum. Holds 64 MiB of a tensor at a time. kIo; and what `read` throws.
void WriteDistributed(const Manifest& manifest, const ReadElements& read, const std::string& out,
                      const std::function<void(uint64_t done, uint64_t all)>& progress);

}  // namespace dslaunch
