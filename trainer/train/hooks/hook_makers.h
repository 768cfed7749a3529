// Makers of the hooks, each of which is in a file of its own. A maker returns null if the recipe
// does not request the hook on this rank.
#pragma once

#include <memory>

#include "trainer/train/train_hook.h"

namespace dslaunch {

// Writes run.json for the job's report at the first exchange, and passes the floating point
// operations of a step, which have been counted by then, to run.progress.
std::unique_ptr<TrainHook> MakeRunInfoHook();

// For wall_clock_breakdown: prints how a step's time is divided.
std::unique_ptr<TrainHook> MakeBreakdownHook(const Recipe& recipe);

// Reports loss and rate to stdout, the metrics files and the status pipe (Progress).
std::unique_ptr<TrainHook> MakeProgressHook();

// For run.profile and run.trace: runs the profiler. Measures the memory of this thread's tensors
// from this call on. Throws kIo.
std::unique_ptr<TrainHook> MakeProfileHook(const Recipe& recipe, const WorkerEnv& env);

// Counts the operations of the first step, and prints the report of flops_profiler. Throws kIo.
std::unique_ptr<TrainHook> MakeFlopsHook(const Recipe& recipe, const WorkerEnv& env);

// For csv_monitor and tensorboard: writes the steps to run.monitors.
std::unique_ptr<TrainHook> MakeMonitorHook();

// For comms_logger: prints a table of the ranks' exchanges at the end of training.
std::unique_ptr<TrainHook> MakeCommsHook(const Recipe& recipe);

// Prints at the end of training how long it waited for data and how much memory of the GPU it used;
// with memory_breakdown, also the planned and the measured memory.
std::unique_ptr<TrainHook> MakeEndReportHook();

// For run.check_replicas_every: compares the ranks' weights. Throws kInternal in training if they
// differ.
std::unique_ptr<TrainHook> MakeReplicaCheckHook(const Recipe& recipe);

// For parallel.staleness, on servers: makes the ranks wait for each other before weights are saved
// or evaluated, and continue afterwards. The hook of MakeMeetHook is called before the hooks that
// save or evaluate, the other one after them.
std::unique_ptr<TrainHook> MakeMeetHook();
std::unique_ptr<TrainHook> MakeGoOnHook();

// For run.memory_checkpoint: copies the state into the memory of the node between steps.
std::unique_ptr<TrainHook> MakeMemoryHook(const Recipe& recipe, const WorkerEnv& env);

// Saves a checkpoint every run.save_every steps or epochs.
std::unique_ptr<TrainHook> MakeCheckpointHook(const Recipe& recipe);

// For run.eval_every: evaluates between steps.
std::unique_ptr<TrainHook> MakeEvaluationHook(const Recipe& recipe);

}  // namespace dslaunch
