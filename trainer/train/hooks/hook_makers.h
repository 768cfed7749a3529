// Makes the hooks, each of which has a file of its own. A maker returns null if the recipe does not
// request the hook on this rank.
#pragma once

#include <memory>

#include "trainer/train/train_hook.h"

namespace dslaunch {

// The hook writes run.json for the job's report at the first exchange, and passes the floating
// point operations of a step, which have been counted by then, to run.progress.
std::unique_ptr<TrainHook> MakeRunInfoHook();

// The hook of wall_clock_breakdown prints how a step's time is divided.
std::unique_ptr<TrainHook> MakeBreakdownHook(const Recipe& recipe);

// The hook reports loss and rate to stdout, the metrics files and the status pipe (Progress).
std::unique_ptr<TrainHook> MakeProgressHook();

// The hook of run.profile and run.trace runs the profiler. Measures the memory of this thread's
// tensors from this call on. Throws kIo if its file cannot be written.
std::unique_ptr<TrainHook> MakeProfileHook(const Recipe& recipe, const WorkerEnv& env);

// The hook counts the operations of the first step, and prints the report of flops_profiler. Throws
// kIo if the report's file cannot be written.
std::unique_ptr<TrainHook> MakeFlopsHook(const Recipe& recipe, const WorkerEnv& env);

// The hook of csv_monitor and tensorboard writes the steps to run.monitors.
std::unique_ptr<TrainHook> MakeMonitorHook();

// The hook of comms_logger prints a table of the ranks' exchanges at the end of training.
std::unique_ptr<TrainHook> MakeCommsHook(const Recipe& recipe);

// The hook prints at the end of training how long training waited for data and how much GPU memory
// it used. With memory_breakdown, it also prints the planned and the measured memory.
std::unique_ptr<TrainHook> MakeEndReportHook();

// The hook of run.check_replicas_every compares the ranks' weights. It throws kInternal in training
// if they differ.
std::unique_ptr<TrainHook> MakeReplicaCheckHook(const Recipe& recipe);

// The hooks of parallel.staleness, on servers. The hook of MakeMeetHook makes the ranks wait for
// each other before weights are saved or evaluated; the hook of MakeGoOnHook makes them continue.
// Call the first before the hooks that save or evaluate, and the second after them.
std::unique_ptr<TrainHook> MakeMeetHook();
std::unique_ptr<TrainHook> MakeGoOnHook();

// The hook of run.memory_checkpoint copies the state into the memory of the node between steps.
std::unique_ptr<TrainHook> MakeMemoryHook(const Recipe& recipe, const WorkerEnv& env);

// The hook saves a checkpoint every run.save_every steps or epochs.
std::unique_ptr<TrainHook> MakeCheckpointHook(const Recipe& recipe);

// The hook of run.eval_every evaluates between steps.
std::unique_ptr<TrainHook> MakeEvaluationHook(const Recipe& recipe);

}  // namespace dslaunch
