// The actions of each stage of a pipeline in one batch, in order. Pure.
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
  kBackward,           // gradients of inputs and of weights
  kBackwardInput,      // gradients of inputs only (zero bubble)
  kBackwardWeight,     // gradients of weights, which kBackwardInput has left out
  kSendActivation,     // begins to send; only the next use of the memory waits until it is sent
  kReceiveActivation,  // begins to receive; kForward waits for the data
  kSendGradient,
  kReceiveGradient,  // kBackward or kBackwardInput waits for the data
  kReduceTied,       // adds up the gradients of tied weights over their stages
  kReduceData,       // reduces gradients over the replicas of this stage
  kStep,
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;
  int chunk = 0;  // the chunk of this stage that computes, sends or receives
  int peer = 0;   // the other stage of a send or receive
  bool operator==(const Action&) const = default;
};

struct PipelineSchedule {
  PipelineScheduleType type = PipelineScheduleType::kOneForwardOneBackward;
  int stages = 1;
  int micro_batches = 1;
  int virtual_stages = 1;
  std::vector<std::vector<Action>> actions;  // actions of each stage, in order
};

// - gpipe: all forward passes, then all backward passes (GPipe, section 2.3).
// - 1f1b: PipeDream-flush (Narayanan et al. 2021, section 2.1).
// - interleaved: 1f1b over several chunks of each stage (section 2.2), in rounds of `stages`
//   micro-batches; if `stages` does not divide their number, in longer rounds of nearly equal size.
// - zb-h1: 1f1b whose weight gradients fill the bubble (Qi et al. 2023, section 2.1): stage s
//   (from 0) computes them s micro-batches later.
// `micro_batches` is at least 1 and may be less than `stages`. Gradients add up in the order of the
// micro-batches. Every list ends with kReduceTied, kReduceData and kStep. The lists are projections
// of one common order in which each send is next to its receive. They therefore cannot block, even
// if a send ends only when it is matched and all messages between two stages keep one order.
PipelineSchedule MakePipelineSchedule(PipelineScheduleType type, int stages, int micro_batches,
                                      int virtual_stages);

// Returns a schedule of forward passes only.
PipelineSchedule MakeForwardSchedule(int stages, int micro_batches, int virtual_stages);

// Returns "F3", "B3", "I3", "W3", "SA3>1" and so on, for messages and tests.
std::string ActionName(const Action& action);

}  // namespace dslaunch
