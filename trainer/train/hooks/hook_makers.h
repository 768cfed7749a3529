// The hooks, one in each file. The functions return null if the recipe does not request the hook on
// this rank.
#pragma once

#include <memory>

#include "trainer/train/train_hook.h"

namespace dslaunch {

// Writes run.json for the job's report at the first exchange, and passes the floating point
// operations of a step, which have been counted by then, to run.progress.
std::unique_ptr<TrainHook> MakeRunInfoHook();

// wall_clock_breakdown: a line with the parts of a step's time.
std::unique_ptr<TrainHook> MakeBreakdownHook(const Recipe& recipe);

// Loss, rate, metrics files and the status pipe (Progress).
std::unique_ptr<TrainHook> MakeProgressHook();

// run.profile and run.trace: the profiler, which from here on measures the memory of this thread's
// tensors. Throws kIo.
std::unique_ptr<TrainHook> MakeProfileHook(const Recipe& recipe, const WorkerEnv& env);

// Counts the operations of the first step, and reports those of flops_profiler. Throws kIo.
std::unique_ptr<TrainHook> MakeFlopsHook(const Recipe& recipe, const WorkerEnv& env);

// csv_monitor and tensorboard: writes the steps to run.monitors.
std::unique_ptr<TrainHook> MakeMonitorHook();

// comms_logger: prints a table of the ranks' exchanges at the end of training.
std::unique_ptr<TrainHook> MakeCommsHook(const Recipe& recipe);

// Prints at the end of training the time waited for data, the GPU's memory, and with
// memory_breakdown the planned beside the measured memory.
std::unique_ptr<TrainHook> MakeEndReportHook();

// run.check_replicas_every: compares the ranks' weights. Throws kInternal in training if they
// differ.
std::unique_ptr<TrainHook> MakeReplicaCheckHook(const Recipe& recipe);

// parallel.staleness, on servers: the ranks wait for each other before weights are saved or
// evaluated and continue afterwards. The first hook is before those that save or evaluate, the
// second after them.
std::unique_ptr<TrainHook> MakeMeetHook();
std::unique_ptr<TrainHook> MakeGoOnHook();

// run.memory_checkpoint: copies the state into the memory of the node between steps.
std::unique_ptr<TrainHook> MakeMemoryHook(const Recipe& recipe, const WorkerEnv& env);

// Saves every run.save_every steps or epochs.
std::unique_ptr<TrainHook> MakeCheckpointHook(const Recipe& recipe);

// run.eval_every: evaluates between steps.
std::unique_ptr<TrainHook> MakeEvaluationHook(const Recipe& recipe);

}  // namespace dslaunch
