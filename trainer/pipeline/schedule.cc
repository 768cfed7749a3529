#include "trainer/pipeline/schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

// The work of one pass: a micro-batch and a chunk.
struct Piece {
  int micro_batch, chunk;
};

// Returns the bounds of the rounds in which micro-batches pass through the chunks: all
// micro-batches of a round pass through one chunk, then all pass through the next. A round of at
// least `stages` micro-batches never waits for its first micro-batch to return from the last stage,
// and larger rounds only take more memory. There are therefore as many rounds as possible, of
// nearly equal size.
std::vector<int> RoundBounds(int stages, int micro_batches) {
  const int rounds = std::max(1, micro_batches / stages);
  std::vector<int> bounds;
  for (int64_t i = 0; i <= rounds; ++i) {
    bounds.push_back(static_cast<int>(i * micro_batches / rounds));
  }
  return bounds;
}

std::vector<Piece> ForwardOrder(const std::vector<int>& rounds, int chunks) {
  std::vector<Piece> order;
  for (size_t i = 1; i < rounds.size(); ++i) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int m = rounds[i - 1]; m < rounds[i]; ++m) order.push_back({m, chunk});
    }
  }
  return order;
}

// Returns the passes of the backward direction. Micro-batches keep the order in which a single
// process would add up their gradients.
std::vector<Piece> BackwardOrder(const std::vector<int>& rounds, int chunks) {
  std::vector<Piece> order = ForwardOrder(rounds, chunks);
  for (Piece& piece : order) piece.chunk = chunks - 1 - piece.chunk;
  return order;
}

// Returns the number of forward passes that a stage runs before its first backward pass.
int WarmUp(const PipelineSchedule& schedule, const std::vector<int>& rounds, int stage) {
  const int pieces = schedule.micro_batches * schedule.virtual_stages;
  if (schedule.type == PipelineScheduleType::kGpipe) return pieces;
  const int stages_after = schedule.stages - 1 - stage;
  if (schedule.virtual_stages == 1) return std::min(pieces, stages_after);
  int round = 0;
  for (size_t i = 1; i < rounds.size(); ++i) round = std::max(round, rounds[i] - rounds[i - 1]);
  return std::min(pieces, 2 * stages_after + (schedule.virtual_stages - 1) * round);
}

// Builds the list of a stage's computing actions.
class ComputeList {
 public:
  ComputeList(const PipelineSchedule& schedule, int stage)
      : schedule_(schedule),
        stage_(stage),
        rounds_(RoundBounds(schedule.stages, schedule.micro_batches)),
        backward_(BackwardOrder(rounds_, schedule.virtual_stages)) {}

  std::vector<Action> Make() {
    const std::vector<Piece> forward = ForwardOrder(rounds_, schedule_.virtual_stages);
    const size_t ahead = static_cast<size_t>(WarmUp(schedule_, rounds_, stage_));
    for (size_t i = 0; i < forward.size() + ahead; ++i) {
      if (i < forward.size()) Add(ActionKind::kForward, forward[i]);
      if (i >= ahead) AddBackward(i - ahead);
    }
    if (schedule_.type == PipelineScheduleType::kZeroBubbleH1) {
      while (weights_done_ < backward_.size()) AddWeight();
    }
    return std::move(actions_);
  }

 private:
  void AddBackward(size_t i) {
    if (schedule_.type != PipelineScheduleType::kZeroBubbleH1) {
      Add(ActionKind::kBackward, backward_[i]);
      return;
    }
    Add(ActionKind::kBackwardInput, backward_[i]);
    // A stage with fewer forward passes ahead starts its weight gradients later. All stages then
    // hold as many micro-batches as the first stage, and have weight gradients left for the end of
    // the batch, when they would otherwise be idle.
    if (i >= static_cast<size_t>(stage_)) AddWeight();
  }
  void AddWeight() { Add(ActionKind::kBackwardWeight, backward_[weights_done_++]); }
  void Add(ActionKind kind, Piece piece) {
    actions_.push_back({.kind = kind, .micro_batch = piece.micro_batch, .chunk = piece.chunk});
  }

  const PipelineSchedule& schedule_;
  const int stage_;
  const std::vector<int> rounds_;
  const std::vector<Piece> backward_;
  size_t weights_done_ = 0;
  std::vector<Action> actions_;
};

// A computing action with its time in the virtual run.
struct Computed {
  int stage = 0;
  Action action;
  int64_t end = 0;
  int64_t needed =
      // Start of the action that reads the output; the maximum until it is known.
      std::numeric_limits<int64_t>::max();
};

// Runs the stages' lists of computing actions in virtual time. A forward pass takes one unit and a
// backward pass two; a backward pass for inputs or weights only takes one.
class VirtualRun {
 public:
  explicit VirtualRun(const PipelineSchedule& schedule)
      : schedule_(schedule),
        parts_(schedule.stages * schedule.virtual_stages),
        forward_(static_cast<size_t>(parts_) * static_cast<size_t>(schedule.micro_batches),
                 kNotYet),
        backward_(forward_),
        next_(schedule.actions.size()),
        now_(schedule.actions.size()) {}

  std::vector<Computed> Run() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int stage = 0; stage < schedule_.stages; ++stage) {
        while (RunNext(stage)) goes_on = true;
      }
    }
    for (size_t s = 0; s < next_.size(); ++s) {
      if (next_[s] == schedule_.actions[s].size()) continue;
      throw TrainError(ExitCode::kInternal, "a pipeline schedule blocks in stage " +
                                                std::to_string(s) + " before " +
                                                ActionName(schedule_.actions[s][next_[s]]) +
                                                "; this is a bug in dslaunch");
    }
    return std::move(done_);
  }

 private:
  static constexpr size_t kNotYet = std::numeric_limits<size_t>::max();

  // Runs the stage's next action. Returns false if its input is not available yet.
  bool RunNext(int stage) {
    const size_t s = static_cast<size_t>(stage);
    if (next_[s] == schedule_.actions[s].size()) return false;
    const Action& action = schedule_.actions[s][next_[s]];
    const int part = action.chunk * schedule_.stages + stage;
    int64_t start = now_[s];
    if (const size_t* input = InputOf(part, action)) {
      if (*input == kNotYet) return false;
      start = std::max(start, done_[*input].end);
      done_[*input].needed = start;
    }
    if (action.kind == ActionKind::kForward) {
      forward_[Index(part, action)] = done_.size();
    } else if (action.kind != ActionKind::kBackwardWeight) {
      backward_[Index(part, action)] = done_.size();
    }
    now_[s] = start + (action.kind == ActionKind::kBackward ? 2 : 1);
    done_.push_back({.stage = stage, .action = action, .end = now_[s]});
    ++next_[s];
    return true;
  }

  // Returns a pointer to the index in done_ of the action whose output this action reads, kNotYet
  // if that action has not run; null if no output of another action is needed.
  const size_t* InputOf(int part, const Action& action) const {
    if (action.kind == ActionKind::kBackwardWeight) return nullptr;
    if (action.kind == ActionKind::kForward) {
      return part == 0 ? nullptr : &forward_[Index(part - 1, action)];
    }
    return part == parts_ - 1 ? nullptr : &backward_[Index(part + 1, action)];
  }

  size_t Index(int part, const Action& action) const {
    return static_cast<size_t>(part) * static_cast<size_t>(schedule_.micro_batches) +
           static_cast<size_t>(action.micro_batch);
  }

  const PipelineSchedule& schedule_;
  const int parts_;
  // Indices in done_ of the forward and backward passes, by part and micro-batch.
  std::vector<size_t> forward_, backward_;
  std::vector<size_t> next_;  // index of the next action of each stage
  std::vector<int64_t> now_;
  std::vector<Computed> done_;
};

// Appends the send and the receive that follow a forward or backward pass to the lists of their
// stages.
void AppendTransfer(const Computed& computed, PipelineSchedule& schedule) {
  const Action& action = computed.action;
  if (action.kind == ActionKind::kBackwardWeight) return;
  const bool forward = action.kind == ActionKind::kForward;
  const int part = action.chunk * schedule.stages + computed.stage;
  const int to = forward ? part + 1 : part - 1;
  if (to < 0 || to == schedule.stages * schedule.virtual_stages) return;
  const int peer = to % schedule.stages;
  if (peer == computed.stage) return;
  schedule.actions[static_cast<size_t>(computed.stage)].push_back(
      {.kind = forward ? ActionKind::kSendActivation : ActionKind::kSendGradient,
       .micro_batch = action.micro_batch,
       .chunk = action.chunk,
       .peer = peer});
  schedule.actions[static_cast<size_t>(peer)].push_back(
      {.kind = forward ? ActionKind::kReceiveActivation : ActionKind::kReceiveGradient,
       .micro_batch = action.micro_batch,
       .chunk = to / schedule.stages,
       .peer = computed.stage});
}

// Inserts sends and receives between the computing actions. The common order of all lists is the
// order in which computing actions end, and each action is followed by its transfer. A receive
// therefore begins before the action that its stage computes while the data arrives, and overlaps
// with that action. If actions end at the same time, the action whose output is needed first comes
// first.
void AddTransfers(PipelineSchedule& schedule) {
  std::vector<Computed> order = VirtualRun(schedule).Run();
  const auto place = [](const Computed& computed) {
    const bool forward = computed.action.kind == ActionKind::kForward;
    return std::tuple(computed.end, computed.needed, !forward,
                      forward ? computed.stage : -computed.stage);
  };
  std::sort(order.begin(), order.end(),
            [&](const Computed& a, const Computed& b) { return place(a) < place(b); });
  for (std::vector<Action>& actions : schedule.actions) actions.clear();
  for (const Computed& computed : order) {
    schedule.actions[static_cast<size_t>(computed.stage)].push_back(computed.action);
    AppendTransfer(computed, schedule);
  }
}

}  // namespace

PipelineSchedule MakePipelineSchedule(PipelineScheduleType type, int stages, int micro_batches,
                                      int virtual_stages) {
  PipelineSchedule schedule{type, stages, micro_batches, virtual_stages, {}};
  for (int stage = 0; stage < stages; ++stage) {
    schedule.actions.push_back(ComputeList(schedule, stage).Make());
  }
  AddTransfers(schedule);
  for (std::vector<Action>& actions : schedule.actions) {
    for (ActionKind kind : {ActionKind::kReduceTied, ActionKind::kReduceData, ActionKind::kStep}) {
      actions.push_back({.kind = kind});
    }
  }
  return schedule;
}

PipelineSchedule MakeForwardSchedule(int stages, int micro_batches, int virtual_stages) {
  PipelineSchedule schedule{
      PipelineScheduleType::kGpipe, stages, micro_batches, virtual_stages, {}};
  std::vector<Action> forward;
  for (const Piece& piece : ForwardOrder(RoundBounds(stages, micro_batches), virtual_stages)) {
    forward.push_back({.micro_batch = piece.micro_batch, .chunk = piece.chunk});
  }
  schedule.actions.assign(static_cast<size_t>(stages), forward);
  AddTransfers(schedule);
  return schedule;
}

std::string ActionName(const Action& action) {
  const auto named = [&](const std::string& kind) {
    return kind + std::to_string(action.micro_batch) +
           (action.chunk > 0 ? "/" + std::to_string(action.chunk) : "");
  };
  const std::string to = ">" + std::to_string(action.peer);
  const std::string from = "<" + std::to_string(action.peer);
  switch (action.kind) {
    case ActionKind::kForward:
      return named("F");
    case ActionKind::kBackward:
      return named("B");
    case ActionKind::kBackwardInput:
      return named("I");
    case ActionKind::kBackwardWeight:
      return named("W");
    case ActionKind::kSendActivation:
      return named("SA") + to;
    case ActionKind::kReceiveActivation:
      return named("RA") + from;
    case ActionKind::kSendGradient:
      return named("SG") + to;
    case ActionKind::kReceiveGradient:
      return named("RG") + from;
    case ActionKind::kReduceTied:
      return "reduce tied";
    case ActionKind::kReduceData:
      return "reduce data";
    case ActionKind::kStep:
      return "step";
  }
  return "";
}

}  // namespace dslaunch
