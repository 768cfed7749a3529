#include "trainer/pipeline/schedule_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>

#include "trainer/pipeline/deferred_sends.h"

namespace dslaunch {
namespace {

// Flags for the actions that are done for one micro-batch in one chunk.
constexpr unsigned kInput = 1;  // set once the receive of the activations has begun
constexpr unsigned kForward = 2;
constexpr unsigned kOutputSent = 4;
constexpr unsigned kGradient = 8;  // set once the receive of the gradient has begun
constexpr unsigned kInputGradient = 16;
constexpr unsigned kWeightGradient = 32;
constexpr unsigned kGradientSent = 64;

constexpr ActionKind kEnd[] = {ActionKind::kReduceTied, ActionKind::kReduceData, ActionKind::kStep};

// Checks that a stage runs all necessary actions, and that every action has its input. WaitCheck
// checks that received data arrives.
class StageCheck {
 public:
  StageCheck(const PipelineSchedule& schedule, int stage, bool trains)
      : schedule_(schedule),
        stage_(stage),
        trains_(trains),
        last_part_(schedule.stages * schedule.virtual_stages - 1),
        done_(static_cast<size_t>(schedule.virtual_stages) *
              static_cast<size_t>(schedule.micro_batches)) {}

  std::string Find() {
    const std::vector<Action>& actions = schedule_.actions[static_cast<size_t>(stage_)];
    const size_t end_size = trains_ ? std::size(kEnd) : 0;
    const size_t body = actions.size() - std::min(actions.size(), end_size);
    for (size_t i = 0; i < actions.size(); ++i) {
      const std::string wrong = i < body ? Do(actions[i]) : DoEnd(actions[i], kEnd[i - body]);
      if (wrong.empty()) continue;
      return "stage " + std::to_string(stage_) + ", action " + std::to_string(i) + " (" +
             ActionName(actions[i]) + "): " + wrong;
    }
    return FindMissing();
  }

 private:
  // Returns whether another stage sends a chunk's input, or whether another stage receives its
  // output.
  bool input_comes(int chunk) const { return schedule_.stages > 1 && part(chunk) > 0; }
  bool output_goes(int chunk) const { return schedule_.stages > 1 && part(chunk) < last_part_; }
  int part(int chunk) const { return chunk * schedule_.stages + stage_; }
  int stage_before() const { return (stage_ + schedule_.stages - 1) % schedule_.stages; }
  int stage_after() const { return (stage_ + 1) % schedule_.stages; }

  unsigned& done(int micro_batch, int chunk) {
    return done_[static_cast<size_t>(chunk) * static_cast<size_t>(schedule_.micro_batches) +
                 static_cast<size_t>(micro_batch)];
  }

  std::string Do(const Action& action) {
    if (std::find(std::begin(kEnd), std::end(kEnd), action.kind) != std::end(kEnd)) {
      return trains_ ? "only the last three actions reduce and step" : "nothing is trained";
    }
    if (action.micro_batch < 0 || action.micro_batch >= schedule_.micro_batches) {
      return "there is no such micro-batch";
    }
    if (action.chunk < 0 || action.chunk >= schedule_.virtual_stages) {
      return "the stage has no such chunk";
    }
    const int m = action.micro_batch;
    const int c = action.chunk;
    const bool first = part(c) == 0;
    const bool last = part(c) == last_part_;
    switch (action.kind) {
      case ActionKind::kReceiveActivation:
        if (!input_comes(c)) return "its input does not come from another stage";
        return Transfer(action, stage_before(), kInput, 0);
      case ActionKind::kForward:
        if (input_comes(c) || first) return Set(m, c, kForward, first ? 0 : kInput);
        if (!(done(m, c - 1) & kForward)) return "the chunk before has no output yet";
        return Set(m, c, kForward, 0);
      case ActionKind::kSendActivation:
        if (!output_goes(c)) return "its output does not go to another stage";
        return Transfer(action, stage_after(), kOutputSent, kForward);
      case ActionKind::kReceiveGradient:
        if (!output_goes(c)) return "its gradient does not come from another stage";
        return Transfer(action, stage_after(), kGradient, kForward);
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput: {
        const unsigned sets =
            kInputGradient | (action.kind == ActionKind::kBackward ? kWeightGradient : 0u);
        if (output_goes(c) || last) return Set(m, c, sets, kForward | (last ? 0u : kGradient));
        if (!(done(m, c + 1) & kInputGradient)) return "the chunk after has no gradient yet";
        return Set(m, c, sets, kForward);
      }
      case ActionKind::kBackwardWeight:
        return Set(m, c, kWeightGradient, kInputGradient);
      case ActionKind::kSendGradient:
        if (!input_comes(c)) return "its gradient does not go to another stage";
        return Transfer(action, stage_before(), kGradientSent, kInputGradient);
      default:
        return "is not an action of a schedule";
    }
  }

  static std::string DoEnd(const Action& action, ActionKind expected) {
    if (action.kind == expected) return "";
    return "the last three actions must be to reduce tied, to reduce data and to step";
  }

  std::string Transfer(const Action& action, int peer, unsigned sets, unsigned needs) {
    if (action.peer != peer) return "its peer must be stage " + std::to_string(peer);
    return Set(action.micro_batch, action.chunk, sets, needs);
  }

  std::string Set(int micro_batch, int chunk, unsigned sets, unsigned needs) {
    unsigned& flags = done(micro_batch, chunk);
    if (flags & sets) return "is already done";
    if ((flags & needs) != needs)
      return std::string(NameOf(needs & ~flags)) + " is not available yet";
    flags |= sets;
    return "";
  }

  static const char* NameOf(unsigned missing) {
    if (missing & kInput) return "its input";
    if (missing & kForward) return "its forward pass";
    if (missing & kGradient) return "its gradient";
    if (missing & kInputGradient) return "its backward pass";
    if (missing & kWeightGradient) return "the gradient of its weights";
    return missing & kOutputSent ? "the sending of its output" : "the sending of its gradient";
  }

  std::string FindMissing() {
    for (int chunk = 0; chunk < schedule_.virtual_stages; ++chunk) {
      unsigned all = kForward;
      if (input_comes(chunk)) all |= kInput;
      if (output_goes(chunk)) all |= kOutputSent;
      if (trains_) {
        all |= kInputGradient | kWeightGradient;
        if (output_goes(chunk)) all |= kGradient;
        if (input_comes(chunk)) all |= kGradientSent;
      }
      for (int m = 0; m < schedule_.micro_batches; ++m) {
        if (done(m, chunk) == all) continue;
        return "stage " + std::to_string(stage_) + ": of micro-batch " + std::to_string(m) +
               " in chunk " + std::to_string(chunk) + " " + NameOf(all & ~done(m, chunk)) +
               " is missing";
      }
    }
    return "";
  }

  const PipelineSchedule& schedule_;
  const int stage_;
  const bool trains_;
  const int last_part_;
  std::vector<unsigned> done_;  // flags of the actions that are done, by chunk and micro-batch
};

// Simulates the sends and receives of all stages. Each send or receive blocks until the other stage
// has reached the matching action.
class WaitCheck {
 public:
  explicit WaitCheck(const PipelineSchedule& schedule) : schedule_(schedule) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
      next_.push_back(-1);
      Advance(stage);
    }
  }

  std::string Find() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int stage = 0; stage < schedule_.stages; ++stage) {
        for (const Action* mine = At(stage); mine != nullptr; mine = At(stage)) {
          const Action* theirs = At(mine->peer);
          if (theirs == nullptr || theirs->peer != stage) break;
          if (!Match(stage, *mine, *theirs)) {
            return "stage " + std::to_string(stage) + " is at " + ActionName(*mine) +
                   " and stage " + std::to_string(mine->peer) + " at " + ActionName(*theirs) +
                   ": these do not match, and neither stage can continue";
          }
          Advance(mine->peer);
          Advance(stage);
          goes_on = true;
        }
      }
    }
    std::string waiting;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      if (At(stage) == nullptr) continue;
      waiting += (waiting.empty() ? "stage " : ", stage ") + std::to_string(stage) + " at " +
                 ActionName(*At(stage));
    }
    return waiting.empty() ? "" : "stages wait forever: " + waiting;
  }

 private:
  // Returns the stage's next send or receive, or null at the end of its list.
  const Action* At(int stage) const {
    const std::vector<Action>& actions = schedule_.actions[static_cast<size_t>(stage)];
    const size_t next = static_cast<size_t>(next_[static_cast<size_t>(stage)]);
    return next < actions.size() ? &actions[next] : nullptr;
  }

  void Advance(int stage) {
    do {
      ++next_[static_cast<size_t>(stage)];
    } while (At(stage) != nullptr && !IsExchange(At(stage)->kind));
  }

  bool Match(int stage, const Action& mine, const Action& theirs) const {
    const auto pair = [&](ActionKind send, ActionKind receive) {
      return (mine.kind == send && theirs.kind == receive) ||
             (mine.kind == receive && theirs.kind == send);
    };
    const bool activation = pair(ActionKind::kSendActivation, ActionKind::kReceiveActivation);
    if (!activation && !pair(ActionKind::kSendGradient, ActionKind::kReceiveGradient)) return false;
    // The stage that sends activations or receives gradients has the earlier part of the model.
    const bool mine_is_earlier =
        mine.kind == ActionKind::kSendActivation || mine.kind == ActionKind::kReceiveGradient;
    const int64_t my_part = int64_t{mine.chunk} * schedule_.stages + stage;
    const int64_t their_part = int64_t{theirs.chunk} * schedule_.stages + mine.peer;
    return mine.micro_batch == theirs.micro_batch &&
           their_part - my_part == (mine_is_earlier ? 1 : -1);
  }

  const PipelineSchedule& schedule_;
  std::vector<int64_t> next_;  // index of the next action of each stage
};

// Returns, for each stage, the largest number of forward passes that have run without their action
// of a kind in `end`.
std::vector<int> Peaks(const PipelineSchedule& schedule, const std::set<ActionKind>& end) {
  std::vector<int> peaks;
  for (const std::vector<Action>& actions : schedule.actions) {
    int open = 0;
    int peak = 0;
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kForward) peak = std::max(peak, ++open);
      if (end.contains(action.kind)) --open;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace

std::string CheckSchedule(const PipelineSchedule& schedule) {
  if (schedule.stages < 1 || schedule.micro_batches < 1 || schedule.virtual_stages < 1) {
    return "there must be at least one stage, micro-batch and chunk";
  }
  if (schedule.actions.size() != static_cast<size_t>(schedule.stages)) {
    return "there are lists for " + std::to_string(schedule.actions.size()) + " of " +
           std::to_string(schedule.stages) + " stages";
  }
  bool trains = false;
  for (const std::vector<Action>& actions : schedule.actions) {
    trains = trains || std::any_of(actions.begin(), actions.end(), [](const Action& action) {
               return action.kind != ActionKind::kForward &&
                      action.kind != ActionKind::kSendActivation &&
                      action.kind != ActionKind::kReceiveActivation;
             });
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const std::string wrong = StageCheck(schedule, stage, trains).Find();
    if (!wrong.empty()) return wrong;
  }
  return WaitCheck(schedule).Find();
}

std::vector<int> PeakLiveMicroBatches(const PipelineSchedule& schedule) {
  return Peaks(schedule, {ActionKind::kBackward, ActionKind::kBackwardInput});
}

std::vector<int> PeakHeldMicroBatches(const PipelineSchedule& schedule) {
  return Peaks(schedule, {ActionKind::kBackward, ActionKind::kBackwardWeight});
}

int LiveMicroBatchesBound(PipelineScheduleType type, int stages, int micro_batches,
                          int virtual_stages, int stage) {
  const int all = micro_batches * virtual_stages;
  if (type == PipelineScheduleType::kGpipe) return all;
  if (virtual_stages == 1) return std::min(stages - stage, all);
  const int rounds = std::max(1, micro_batches / stages);
  const int longest_round = (micro_batches + rounds - 1) / rounds;
  return std::min((virtual_stages - 1) * longest_round + 2 * (stages - 1 - stage) + 1, all);
}

}  // namespace dslaunch
