// Creates the schedule of a pipeline: the ordered actions of each stage in one batch. Pure
// functions.
//
// Layers are cut into stages * virtual_stages chunks; chunk c of stage s is part c * stages + s of
// the model (Narayanan et al. 2021, section 2.2). A micro-batch passes through the parts in
// ascending order, and its gradient in descending order.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/pipeline_config.h"

namespace dslaunch {

enum class ActionKind {
  kForward,
  kBackward,           // computes the gradients of inputs and weights
  kBackwardInput,      // computes the gradients of inputs only (zero bubble)
  kBackwardWeight,     // computes the gradients of weights that kBackwardInput omitted
  kSendActivation,     // begins to send activations; does not wait until the data is sent
  kReceiveActivation,  // begins to receive activations; kForward waits for the data
  kSendGradient,
  kReceiveGradient,  // begins to receive a gradient; the backward pass waits for the data
  kReduceTied,       // sums the gradients of tied weights over the stages that share them
  kReduceData,       // reduces gradients over the replicas of this stage
  kStep,
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;
  int chunk = 0;  // number of the chunk in this stage that computes, sends or receives
  int peer = 0;   // other stage of a send or receive
  bool operator==(const Action&) const = default;
};

struct PipelineSchedule {
  PipelineScheduleType type = PipelineScheduleType::kOneForwardOneBackward;
  int stages = 1;
  int micro_batches = 1;
  int virtual_stages = 1;
  std::vector<std::vector<Action>> actions;  // ordered actions of each stage
};

// Returns the schedule of a batch. The types differ in the order of the passes:
// - gpipe runs all forward passes, then all backward passes (GPipe, section 2.3).
// - 1f1b is PipeDream-flush (Narayanan et al. 2021, section 2.1).
// - interleaved runs 1f1b over several chunks of each stage (section 2.2), in rounds of `stages`
//   micro-batches. If `stages` does not divide the number of micro-batches, rounds are longer and
//   of nearly equal size.
// - zb-h1 is 1f1b whose weight gradients fill the bubble (Qi et al. 2023, section 2.1): stage s
//   (from 0) computes them s micro-batches later.
// `micro_batches` is at least 1 and may be less than `stages`. Gradients add up in the order of the
// micro-batches. Every list ends with kReduceTied, kReduceData and kStep. All lists follow one
// common order, in which each send is next to its receive. The lists therefore cannot deadlock,
// even if a send ends only when it is matched and all messages between two stages keep one order.
PipelineSchedule MakePipelineSchedule(PipelineScheduleType type, int stages, int micro_batches,
                                      int virtual_stages);

// Returns a schedule that consists only of forward passes.
PipelineSchedule MakeForwardSchedule(int stages, int micro_batches, int virtual_stages);

// Returns the short name of an action for messages and tests, such as "F3", "B3", "I3", "W3" or
// "SA3>1".
std::string ActionName(const Action& action);

}  // namespace dslaunch
