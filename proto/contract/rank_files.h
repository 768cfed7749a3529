// Defines the files of a training run for `dslaunch report`. Each start of each rank writes them to
// a folder on its node, JOBDIR/nodes/NODE/attempt_K/rank_R. The trainer writes them (trainer/train,
// trainer/profile); the front end collects and draws them (cli/report*). Other programs may write
// them too. All files are UTF-8 JSON, with times in seconds and memory in bytes. A reader ignores
// unknown keys and accepts missing files and keys.
//
// metrics.jsonl   each rank, appended; one object per window of steps:
//   {"step": 120, "steps": 10, "attempt": 1, "step_s": 0.51, "compute_s": 0.38}
//       "step" is the last of the window's "steps" optimizer steps, counted from 1; the times are
//       means over the window; "compute_s" is this rank's own work without waiting for others
//   rank 0 adds the keys of --metrics_jsonl (trainer/train/report.h): "loss", "lr", "grad_norm",
//   "loss_scale", "skipped", "samples", "tokens", "samples_per_s", "tokens_per_s", "mfu" (if the
//   peak of the hardware is known), "memory": {category: bytes, ...}
//   {"step": 938, "attempt": 1, "epoch": 1, "eval": {"loss": 0.35, "accuracy": 0.8712, ...}}
//       an evaluation, on rank 0: "accuracy" is 0 to 1; also "perplexity", and any other numbers
// run.json        rank 0, once, after the first step, in which the operations are counted:
//   {"model": "gpt2", "parameters": 124439808, "dtype": "fp32", "world_size": 2, "zero_stage": 0,
//    "batch": 32, "micro_batch": 8, "accumulation_steps": 2, "optimizer": "AdamW", "lr": 6e-4,
//    "data": "/data/shakespeare", "flops_per_step": 1.2e12, "memory_plan": {category: bytes, ...}}
//       categories as in "memory": parameters, gradients, buckets, optimizer, buffers, activations
// profile.json    each profiled rank, once; sums over the profiled steps:
//   {"rank": 0, "steps": 3, "wall_s": 1.53,
//    "operators": [{"name": "aten::mm", "calls": 36, "self_s": 0.41, "total_s": 0.41,
//                   "self_bytes": 1048576}, ...],
//    "communication": {"total_s": 0.20, "hidden_s": 0.15,
//                      "kinds": [{"name": "all_reduce", "calls": 4, "bytes": 4194304, "s": 0.2}]},
//    "memory": {category: bytes, ..., "allocated": 125829120}}
//       "hidden_s" is the part of the communication during which this rank also computed;
//       "memory" is taken at the backward pass that began with the largest activations, and
//       "allocated" is the memory that the allocator had reserved at that moment
// trace.json      each profiled rank, once: Chrome's trace format
//
// A folder beside those of attempts is for later attempts, not for the report:
// elastic/        commits of Horovod's elastic::State (trainer/compat/horovod/commit_folder.h)
#pragma once

namespace dslaunch {

// The variable whose value is the folder of one start of one rank. The folder exists and is private
// to the user.
inline constexpr char kRankDirVariable[] = "DSLAUNCH_RANK_DIR";

inline constexpr char kMetricsFileName[] = "metrics.jsonl";
inline constexpr char kRunInfoName[] = "run.json";
inline constexpr char kProfileFileName[] = "profile.json";
inline constexpr char kTraceFileName[] = "trace.json";
// The prefix of file names of PyTorch's Flight Recorder. A dump's name is this prefix and the rank,
// and a pipe's name has ".pipe" appended.
inline constexpr char kFlightPrefix[] = "flight_";

}  // namespace dslaunch
