// Writes DeepSpeed's universal checkpoints, which DeepSpeed loads on any number of ranks and at
// ZeRO stages 1 to 3 with `"checkpoint": {"load_universal": true}`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

// Receives the bytes of tensors that have been converted so far, and the bytes of all tensors of
// the checkpoint.
using ProgressFn = std::function<void(uint64_t converted, uint64_t all)>;

// Writes the weights and the optimizer's state of `checkpoint` into the new folder `out`, which can
// then be passed to DeepSpeed's load_checkpoint:
//   latest_universal                               the tag, global_stepN
//   global_stepN/zero/NAME/{fp32,exp_avg,...}.pt   a folder for each trained parameter, in fp32
//   global_stepN/zero/NAME/step.pt                 number of updates
//   global_stepN/zero/optimizer_state.pt           learning rates
//   global_stepN/mp_rank_00_model_states.pt        steps, schedule, buffers and frozen parameters
//   global_stepN/zero_pp_rank_0_mp_rank_00_model_states.pt    the same without tensors, for stage 3
// A parameter counts as trained if the optimizer has state for it or, in a checkpoint without
// optimizer state, if its elements are floating-point numbers. Two things are not written, because
// a checkpoint lacks the configuration: the state of fp16's loss scaler, so DeepSpeed starts with
// its configured scale, and the optimizer's settings besides the rate.
// torch.load(weights_only=True) can read all files. Holds 16 MiB of a tensor at a time. Throws
// kBadInput for a name that cannot be a folder's name or for a state whose shape differs from its
// parameter's, kIo, and the errors of StoredTensors; `out` is then incomplete.
void WriteUniversal(const Checkpoint& checkpoint, const std::string& out,
                    const ProgressFn& progress);

}  // namespace dslaunch
