// Declares a function for each hook of training (train_hook.h). Such a function returns null if the
// recipe does not request the hook on this rank.
#pragma once

#include <memory>

#include "trainer/train/train_hook.h"

namespace dslaunch {

// Makes the hook that writes run.json for the job's report at the first exchange. The hook also
// passes the floating-point operations of a step, which have been counted by then, to run.progress.
std::unique_ptr<TrainHook> MakeRunInfoHook();

// Makes the hook of wall_clock_breakdown, which prints the durations of a step's phases.
std::unique_ptr<TrainHook> MakeBreakdownHook(const Recipe& recipe);

// Makes the hook that reports loss and rate to stdout, the metrics files and the status pipe
// (Progress).
std::unique_ptr<TrainHook> MakeProgressHook();

// Makes the hook of run.profile and run.trace, which runs the profiler. Measures the memory of this
// thread's tensors from this call on. Throws kIo if the profile's file cannot be written.
std::unique_ptr<TrainHook> MakeProfileHook(const Recipe& recipe, const WorkerEnv& env);

// Makes the hook that counts the operations of the first step and prints the report of
// flops_profiler. Throws kIo if the report's file cannot be written.
std::unique_ptr<TrainHook> MakeFlopsHook(const Recipe& recipe, const WorkerEnv& env);

// Makes the hook of csv_monitor and tensorboard, which writes each step's metrics to run.monitors.
std::unique_ptr<TrainHook> MakeMonitorHook();

// Makes the hook of comms_logger, which prints a table of the collective operations when training
// ends.
std::unique_ptr<TrainHook> MakeCommsHook(const Recipe& recipe);

// Makes the hook that prints, when training ends, how long training waited for data and how much
// GPU memory it used. With memory_breakdown, the hook also prints the planned and the measured
// memory.
std::unique_ptr<TrainHook> MakeEndReportHook();

// Makes the hook of run.check_replicas_every, which compares the ranks' weights. The hook throws
// kInternal if they differ.
std::unique_ptr<TrainHook> MakeReplicaCheckHook(const Recipe& recipe);

// Makes the hook of parallel.staleness on servers that makes the ranks wait for each other before
// weights are saved or evaluated. It must precede the hooks that save or evaluate.
std::unique_ptr<TrainHook> MakeMeetHook();
// Makes the hook of parallel.staleness on servers that lets the ranks continue after MakeMeetHook's
// hook. It must follow the hooks that save or evaluate.
std::unique_ptr<TrainHook> MakeGoOnHook();

// Makes the hook of run.memory_checkpoint, which copies the state into the node's memory between
// steps.
std::unique_ptr<TrainHook> MakeMemoryHook(const Recipe& recipe, const WorkerEnv& env);

// Makes the hook that saves a checkpoint every run.save_every steps or epochs.
std::unique_ptr<TrainHook> MakeCheckpointHook(const Recipe& recipe);

// Makes the hook of run.eval_every, which evaluates between steps.
std::unique_ptr<TrainHook> MakeEvaluationHook(const Recipe& recipe);

}  // namespace dslaunch
