// What the ranks of a training run leave behind for `dslaunch report`: files in a folder of each
// start of each rank, JOBDIR/nodes/NODE/attempt_K/rank_R, on its node. The trainer writes them
// (trainer/train, trainer/profile), the front end collects and draws them (cli/report*). Any
// program may write them too. All are UTF-8 JSON, times in seconds, memory in bytes; a reader
// ignores keys it does not know and does without files and keys that are missing.
//
// metrics.jsonl   each rank, appended to; one object per window of steps:
//   {"step": 120, "steps": 10, "attempt": 1, "step_s": 0.51, "compute_s": 0.38}
//       "step" is the last of the window's "steps" optimizer steps, counted from 1; the times are
//       means over the window, "compute_s" of this rank's own work, waiting for others left out
//   and on rank 0 besides it what --metrics_jsonl has (trainer/train/report.h): "loss", "lr",
//   "grad_norm", "loss_scale", "skipped", "samples", "tokens", "samples_per_s", "tokens_per_s",
//   "mfu" (where the peak of the hardware is known), "memory": {category: bytes, ...}
//   {"step": 938, "attempt": 1, "epoch": 1, "eval": {"loss": 0.35, "accuracy": 0.8712, ...}}
//       an evaluation, on rank 0: "accuracy" is 0 to 1; also "perplexity", and any other numbers
// run.json        rank 0, once, after the first step, in which the operations are counted:
//   {"model": "gpt2", "parameters": 124439808, "dtype": "fp32", "world_size": 2, "zero_stage": 0,
//    "batch": 32, "micro_batch": 8, "accumulation_steps": 2, "optimizer": "AdamW", "lr": 6e-4,
//    "data": "/data/shakespeare", "flops_per_step": 1.2e12, "memory_plan": {category: bytes, ...}}
//       categories as in "memory": parameters, gradients, buckets, optimizer, buffers, activations
// profile.json    each rank that was profiled, once; sums over the profiled steps:
//   {"rank": 0, "steps": 3, "wall_s": 1.53,
//    "operators": [{"name": "aten::mm", "calls": 36, "self_s": 0.41, "total_s": 0.41,
//                   "self_bytes": 1048576}, ...],
//    "communication": {"total_s": 0.20, "hidden_s": 0.15,
//                      "kinds": [{"name": "all_reduce", "calls": 4, "bytes": 4194304, "s": 0.2}]},
//    "memory": {category: bytes, ..., "allocated": 125829120}}
//       "hidden_s" is the part of the communication during which this rank computed as well;
//       "memory" is that of the moment when a backward pass began with the largest activations,
//       "allocated" what the allocator had given out then
// trace.json      each rank that was profiled, once: Chrome's trace format
//
// Beside the folders of attempts, for later attempts and not for the report:
// elastic/        commits of Horovod's elastic::State (trainer/compat/horovod/commit_folder.h)
#pragma once

namespace dslaunch {

// Names the folder of this start of this rank. The folder is there, and private to the user.
inline constexpr char kRankDirVariable[] = "DSLAUNCH_RANK_DIR";

inline constexpr char kMetricsFileName[] = "metrics.jsonl";
inline constexpr char kRunInfoName[] = "run.json";
inline constexpr char kProfileFileName[] = "profile.json";
inline constexpr char kTraceFileName[] = "trace.json";

}  // namespace dslaunch
