// The hooks, one in each file. Null where the recipe does not ask for one on this rank.
#pragma once

#include <memory>

#include "trainer/train/train_hook.h"

namespace dslaunch {

// run.json for the job's report, and the floating point operations of a step, once the first one
// has been counted.
std::unique_ptr<TrainHook> MakeRunInfoHook();

// wall_clock_breakdown: a line with the parts of a step's time.
std::unique_ptr<TrainHook> MakeBreakdownHook(const Recipe& recipe);

// Loss, rate, metrics files and the status pipe (Progress).
std::unique_ptr<TrainHook> MakeProgressHook();

// run.profile and run.trace: the profiler, and from here on the memory of this thread's tensors.
// Throws kIo.
std::unique_ptr<TrainHook> MakeProfileHook(const Recipe& recipe, const WorkerEnv& env);

// Counts the operations of the first step, and reports those of flops_profiler. Throws kIo.
std::unique_ptr<TrainHook> MakeFlopsHook(const Recipe& recipe, const WorkerEnv& env);

// csv_monitor and tensorboard: what run.monitors gets of the steps.
std::unique_ptr<TrainHook> MakeMonitorHook();

// comms_logger: what the ranks exchange until the hook ends, as a table at the end of training.
std::unique_ptr<TrainHook> MakeCommsHook(const Recipe& recipe);

// At the end: waiting for data, the GPU's memory, and with memory_breakdown the plan against what
// was measured.
std::unique_ptr<TrainHook> MakeEndReportHook();

// run.check_replicas_every: whether the ranks' weights are still the same. In training it throws
// kInternal where they differ.
std::unique_ptr<TrainHook> MakeReplicaCheckHook(const Recipe& recipe);

// Of servers with parallel.staleness: ranks come together before weights are saved or evaluated,
// and go on after it. One hook before those that do so, the other after them.
std::unique_ptr<TrainHook> MakeMeetHook();
std::unique_ptr<TrainHook> MakeGoOnHook();

// Saves every run.save_every steps or epochs.
std::unique_ptr<TrainHook> MakeCheckpointHook(const Recipe& recipe);

// run.eval_every: evaluates between steps.
std::unique_ptr<TrainHook> MakeEvaluationHook(const Recipe& recipe);

}  // namespace dslaunch
