// What each stage of a pipeline does in one batch, and in which order. Pure.
//
// Layers are cut into stages * virtual_stages chunks; chunk c of stage s is part c * stages + s of
// the model (Narayanan et al. 2021, section 2.2). Micro-batch m goes through the chunks in the
// order of their parts, and its gradient back.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/pipeline_config.h"

namespace dslaunch {

enum class ActionKind {
  kForward,
  kBackward,       // gradients of inputs and of weights
  kBackwardInput,  // of inputs only; the weights' come with kBackwardWeight (zero bubble)
  kBackwardWeight,
  kSendActivation,     // begins to send; nobody waits for its end but the next reuse of the memory
  kReceiveActivation,  // begins to receive; kForward waits for it
  kSendGradient,
  kReceiveGradient,  // kBackward or kBackwardInput waits for it
  kReduceTied,       // adds up the gradients of tied weights over their stages
  kReduceData,       // over the replicas of this stage
  kStep,
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;
  int chunk = 0;  // of this stage: whose it is that is computed, sent, or received for
  int peer = 0;   // the other stage, where one sends or receives
  bool operator==(const Action&) const = default;
};

struct PipelineSchedule {
  PipelineScheduleType type = PipelineScheduleType::kOneForwardOneBackward;
  int stages = 1;
  int micro_batches = 1;
  int virtual_stages = 1;
  std::vector<std::vector<Action>> actions;  // of each stage
};

// - gpipe: all forward passes, then all backward passes (GPipe, section 2.3).
// - 1f1b: PipeDream-flush (Narayanan et al. 2021, section 2.1).
// - interleaved: the same over several chunks a stage (section 2.2), in rounds of as many
//   micro-batches as there are stages; where these do not divide them, in longer ones that are as
//   equal as can be.
// - zb-h1: 1f1b whose weight gradients fill the bubble (Qi et al. 2023, section 2.1): stage s (from
//   0) does each of them s micro-batches late.
// Any number of micro-batches from 1 on, fewer than stages too. Gradients add up in the order of
// the micro-batches. All of them end with kReduceTied, kReduceData and kStep. The lists of all
// stages are the projections of one order in which each send stands beside its receive: they cannot
// block, even where a send is over only when it is matched and all messages of two stages travel in
// one row.
PipelineSchedule MakePipelineSchedule(PipelineScheduleType type, int stages, int micro_batches,
                                      int virtual_stages);

// Forward passes only.
PipelineSchedule MakeForwardSchedule(int stages, int micro_batches, int virtual_stages);

// "F3", "B3", "I3", "W3", "SA3>1" ...: for messages and tests.
std::string ActionName(const Action& action);

}  // namespace dslaunch
