#include "trainer/pipeline/deferred_sends.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "trainer/config/pipeline_config.h"

namespace dslaunch::deferred_sends_test {
namespace {

// Runs a schedule in which every message of activations has a rest. The simulated network keeps one
// order of all messages between two stages: a transfer ends when both stages have begun it and
// every earlier transfer has ended. A stage waits only for data that it reads.
class StrictRun {
 public:
  explicit StrictRun(const PipelineSchedule& schedule) : schedule_(schedule) {
    for (int stage = 0; stage < schedule.stages; ++stage)
      deferred_sends_.push_back(DeferredSendsAfter(schedule, stage));
    next_.resize(deferred_sends_.size());
    asked_.resize(deferred_sends_.size());
    rows_.assign(deferred_sends_.size(), std::vector<Row>(deferred_sends_.size()));
  }

  // Runs the schedule. Returns the first problem; "" if there was none.
  std::string Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < schedule_.stages; ++stage) {
        while (problem_.empty() && Go(stage)) moved = true;
      }
      if (!problem_.empty()) return problem_;
    }
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const std::vector<Action>& actions = Actions(stage);
      if (next_[Index(stage)] < actions.size()) {
        return "stage " + std::to_string(stage) + " stays before " +
               ActionName(actions[next_[Index(stage)]]);
      }
    }
    return problem_;
  }

 private:
  // The transfers between a stage and one other stage that the first stage has begun. Sender and
  // receiver use the same name for a message.
  struct Row {
    std::vector<std::pair<bool, std::string>> begun;  // whether it sends, name of the message
  };

  static size_t Index(int stage) { return static_cast<size_t>(stage); }
  const std::vector<Action>& Actions(int stage) const { return schedule_.actions[Index(stage)]; }

  void Begin(int stage, int peer, bool sends, const std::string& message) {
    Row& own = rows_[Index(stage)][Index(peer)];
    own.begun.push_back({sends, message});
    const Row& other = rows_[Index(peer)][Index(stage)];
    const size_t last = own.begun.size() - 1;
    if (last >= other.begun.size()) return;
    if (other.begun[last] != std::pair(!sends, message)) {
      problem_ = "stages " + std::to_string(stage) + " and " + std::to_string(peer) + " meet in " +
                 message + " and " + other.begun[last].second;
    }
  }
  bool Over(int stage, int peer, const std::string& message) const {
    const Row& own = rows_[Index(stage)][Index(peer)];
    const size_t matched =
        std::min(own.begun.size(), rows_[Index(peer)][Index(stage)].begun.size());
    for (size_t i = 0; i < matched; ++i) {
      if (own.begun[i].second == message) return true;
    }
    return false;
  }

  static std::string Name(const char* kind, int micro_batch, int stage, int chunk) {
    return kind + std::to_string(micro_batch) + " of stage " + std::to_string(stage) + " chunk " +
           std::to_string(chunk);
  }

  // Runs one action of a stage, or a part of an action. Returns false if the stage has to wait.
  bool Go(int stage) {
    size_t& next = next_[Index(stage)];
    if (next == Actions(stage).size()) return false;
    const Action& action = Actions(stage)[next];
    const ChunkPlace place{stage, action.chunk};
    const int m = action.micro_batch;
    if (IsExchange(action.kind)) {
      const bool sends =
          action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kSendGradient;
      const bool forward = action.kind == ActionKind::kSendActivation ||
                           action.kind == ActionKind::kReceiveActivation;
      const bool of_next = sends == forward;  // whether the message is named after the later chunk
      const ChunkPlace reader = of_next ? After(schedule_, place) : place;
      Begin(stage, action.peer, sends, Name(forward ? "A" : "G", m, reader.stage, reader.chunk));
    } else if (action.kind == ActionKind::kForward && !IsFirst(place) &&
               Before(schedule_, place).stage != stage) {
      const int peer = Before(schedule_, place).stage;
      if (!Over(stage, peer, Name("A", m, stage, action.chunk))) return false;
      const std::string rest = Name("rest ", m, stage, action.chunk);
      if (!asked_[Index(stage)]) {
        Begin(stage, peer, /*sends=*/false, rest);
        asked_[Index(stage)] = true;
        return true;
      }
      if (!Over(stage, peer, rest)) return false;
      asked_[Index(stage)] = false;
    } else if ((action.kind == ActionKind::kBackward ||
                action.kind == ActionKind::kBackwardInput) &&
               !IsLast(schedule_, place) && After(schedule_, place).stage != stage) {
      const ChunkPlace after = After(schedule_, place);
      if (!Over(stage, after.stage, Name("G", m, after.stage, after.chunk))) return false;
    }
    for (const ChunkPlace& reader : deferred_sends_[Index(stage)][next]) {
      const int number = sent_[{reader.stage, reader.chunk}]++;
      Begin(stage, reader.stage, /*sends=*/true, Name("rest ", number, reader.stage, reader.chunk));
    }
    ++next;
    return true;
  }

  const PipelineSchedule& schedule_;
  std::vector<std::vector<std::vector<ChunkPlace>>> deferred_sends_;
  std::vector<size_t> next_;
  std::vector<bool> asked_;  // whether each stage's next forward pass requested the rest
  std::vector<std::vector<Row>> rows_;
  std::map<std::pair<int, int>, int> sent_;  // number of rests sent, by stage and chunk
  std::string problem_;
};

void ExpectRuns(const PipelineSchedule& schedule) {
  EXPECT_EQ(StrictRun(schedule).Run(), "")
      << ScheduleTypeName(schedule.type) << ", " << schedule.stages << " stages, "
      << schedule.micro_batches << " micro-batches, " << schedule.virtual_stages
      << " virtual stages";
}

TEST(DeferredSendsTest, KeepsEveryScheduleRunningOnStrictNetwork) {
  using enum PipelineScheduleType;
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
      for (const auto type : {kGpipe, kOneForwardOneBackward, kZeroBubbleH1}) {
        ExpectRuns(MakePipelineSchedule(type, stages, micro_batches, 1));
      }
      for (int chunks = 1; chunks <= 4; ++chunks) {
        ExpectRuns(MakePipelineSchedule(kInterleaved, stages, micro_batches, chunks));
        ExpectRuns(MakeForwardSchedule(stages, micro_batches, chunks));
      }
    }
  }
}

// In this schedule, stage 1 requests the rest of micro-batch 1 after it has sent the gradient of
// micro-batch 0. So stage 0 must send the rest after it has begun to receive that gradient.
TEST(DeferredSendsTest, SendsRestAfterReceiversEarlierMessages) {
  using enum ActionKind;
  PipelineSchedule schedule;
  schedule.stages = 2;
  schedule.micro_batches = 2;
  schedule.actions = {{{.kind = kForward},
                       {.kind = kSendActivation, .peer = 1},
                       {.kind = kForward, .micro_batch = 1},
                       {.kind = kSendActivation, .micro_batch = 1, .peer = 1},
                       {.kind = kReceiveGradient, .peer = 1},
                       {.kind = kBackward}},
                      {{.kind = kReceiveActivation, .peer = 0},
                       {.kind = kForward},
                       {.kind = kReceiveActivation, .micro_batch = 1, .peer = 0},
                       {.kind = kBackward},
                       {.kind = kSendGradient, .peer = 0},
                       {.kind = kForward, .micro_batch = 1}}};
  using Places = std::vector<ChunkPlace>;
  const Places one = {{1, 0}};
  EXPECT_EQ(DeferredSendsAfter(schedule, 0), (std::vector<Places>{{}, one, {}, {}, one, {}}));
  EXPECT_EQ(DeferredSendsAfter(schedule, 1), std::vector<Places>(6));
}

}  // namespace
}  // namespace dslaunch::deferred_sends_test
