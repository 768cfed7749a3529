#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "trainer/pipeline/schedule_check.h"

namespace dslaunch {

static std::string Described(const PipelineSchedule& schedule) {
  return std::string(ScheduleTypeName(schedule.type)) + ", " + std::to_string(schedule.stages) +
         " stages, " + std::to_string(schedule.micro_batches) + " micro-batches, " +
         std::to_string(schedule.virtual_stages) + " chunks";
}

// Prints a schedule; called by GoogleTest in messages of parametrized tests.
static void PrintTo(const PipelineSchedule& schedule, std::ostream* out) {
  *out << Described(schedule);
}

}  // namespace dslaunch

namespace dslaunch::pipeline_schedule_check_test {
namespace {

using Type = PipelineScheduleType;

constexpr Type kTypes[] = {Type::kGpipe, Type::kOneForwardOneBackward, Type::kInterleaved,
                           Type::kZeroBubbleH1};

TEST(CheckScheduleTest, AcceptsEveryScheduleAndItsMemoryBound) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
      for (int chunks = 1; chunks <= 4; ++chunks) {
        for (Type type : kTypes) {
          const PipelineSchedule schedule =
              MakePipelineSchedule(type, stages, micro_batches, chunks);
          ASSERT_EQ(CheckSchedule(schedule), "") << Described(schedule);
          const std::vector<int> live = PeakLiveMicroBatches(schedule);
          const std::vector<int> held = PeakHeldMicroBatches(schedule);
          for (int s = 0; s < stages; ++s) {
            const size_t i = static_cast<size_t>(s);
            ASSERT_EQ(live[i], LiveMicroBatchesBound(type, stages, micro_batches, chunks, s))
                << Described(schedule) << ", stage " << s;
            if (type != Type::kZeroBubbleH1) {
              ASSERT_EQ(held[i], live[i]);
            } else if (chunks == 1) {
              ASSERT_EQ(held[i], std::min(stages, micro_batches)) << "as 1f1b's first stage";
            }
          }
        }
        ASSERT_EQ(CheckSchedule(MakeForwardSchedule(stages, micro_batches, chunks)), "")
            << stages << " " << micro_batches << " " << chunks;
      }
    }
  }
}

TEST(LiveMicroBatchesBoundTest, MatchesThePapers) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int m = 1; m <= 32; ++m) {
      for (int s = 0; s < stages; ++s) {
        EXPECT_EQ(LiveMicroBatchesBound(Type::kGpipe, stages, m, 1, s), m);
        EXPECT_EQ(LiveMicroBatchesBound(Type::kOneForwardOneBackward, stages, m, 1, s),
                  std::min(stages - s, m));
        EXPECT_EQ(LiveMicroBatchesBound(Type::kZeroBubbleH1, stages, m, 1, s),
                  std::min(stages - s, m));
        // DeepSpeed's number of buffers is an upper bound.
        EXPECT_LE(LiveMicroBatchesBound(Type::kOneForwardOneBackward, stages, m, 1, s),
                  std::max(2, std::min(stages - s, m)));
      }
      // By Korthikanti et al. 2022, interleaving needs the activations of one micro-batch in all
      // layers, times 1 + (K - 1) / (K v). A chunk holds one of K v parts.
      for (int v = 2; v <= 4; ++v) {
        if (m % stages != 0 || m == stages) continue;
        EXPECT_EQ(LiveMicroBatchesBound(Type::kInterleaved, stages, m, v, 0),
                  stages * v + stages - 1);
      }
    }
  }
}

// Runs the lists of actions in a random order and moves data between the stages. A send or receive
// blocks until the other stage is at the matching action, and a sum over stages blocks until all
// stages have reached it. Fails if an action uses data that does not exist.
class Replay {
 public:
  Replay(const PipelineSchedule& schedule, std::mt19937& random)
      : schedule_(schedule),
        random_(random),
        parts_(schedule.stages * schedule.virtual_stages),
        next_(schedule.actions.size()) {}

  bool Works() {
    for (;;) {
      std::vector<int> able;
      for (int s = 0; s < schedule_.stages; ++s) {
        if (const Action* action = Next(s); action != nullptr && CanGoOn(s, *action)) {
          able.push_back(s);
        }
      }
      if (able.empty()) break;
      const int stage = able[std::uniform_int_distribution<size_t>(0, able.size() - 1)(random_)];
      if (!Do(stage, *Next(stage))) return false;
    }
    const int pieces = parts_ * schedule_.micro_batches;
    for (int s = 0; s < schedule_.stages; ++s) {
      if (Next(s) != nullptr || steps_[s] != 3) return false;
    }
    const auto count = [&](char kind) {
      return std::count_if(have_.begin(), have_.end(),
                           [&](const auto& thing) { return std::get<1>(thing) == kind; });
    };
    return count('o') == pieces && count('d') == pieces && count('w') == pieces;
  }

 private:
  // Stage, kind, part, micro-batch. The kind is the input ('i') or output ('o') of a part, or the
  // gradient of its output ('g'), of its input ('d') or of its weights ('w').
  using Thing = std::tuple<int, char, int, int>;

  const Action* Next(int stage) const {
    const auto& actions = schedule_.actions[static_cast<size_t>(stage)];
    const size_t next = next_[static_cast<size_t>(stage)];
    return next < actions.size() ? &actions[next] : nullptr;
  }
  int PartOf(int stage, const Action& action) const {
    return action.chunk * schedule_.stages + stage;
  }
  static bool Sends(const Action& action) {
    return action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kSendGradient;
  }
  static bool Receives(const Action& action) {
    return action.kind == ActionKind::kReceiveActivation ||
           action.kind == ActionKind::kReceiveGradient;
  }

  bool CanGoOn(int stage, const Action& action) const {
    if (action.kind == ActionKind::kReduceTied) {
      for (int s = 0; s < schedule_.stages; ++s) {
        const bool over = steps_.contains(s) && steps_.at(s) > 0;
        if (!over && (Next(s) == nullptr || Next(s)->kind != action.kind)) return false;
      }
      return true;
    }
    if (!Sends(action)) return !Receives(action);
    const Action* other = Next(action.peer);
    return other != nullptr && Receives(*other) && other->peer == stage;
  }

  bool Do(int stage, const Action& action) {
    const int part = PartOf(stage, action);
    const int m = action.micro_batch;
    ++next_[static_cast<size_t>(stage)];
    const auto has = [&](char what, int of_part) {
      return have_.contains({stage, what, of_part, m});
    };
    const auto make = [&](char what) { return have_.insert({stage, what, part, m}).second; };
    const bool last = part == parts_ - 1;
    switch (action.kind) {
      case ActionKind::kForward:
        return (part == 0 || has('i', part) || has('o', part - 1)) && make('o');
      case ActionKind::kBackward:
        return has('o', part) && (last || has('g', part) || has('d', part + 1)) && make('d') &&
               make('w');
      case ActionKind::kBackwardInput:
        return has('o', part) && (last || has('g', part) || has('d', part + 1)) && make('d');
      case ActionKind::kBackwardWeight:
        return has('d', part) && make('w');
      case ActionKind::kSendActivation:
        return has('o', part) && Deliver(action, part + 1, 'i');
      case ActionKind::kSendGradient:
        return has('d', part) && Deliver(action, part - 1, 'g');
      default:
        // The last three actions require that the stage has computed the gradients of all its
        // weights.
        for (int p = stage; p < parts_; p += schedule_.stages) {
          for (int i = 0; i < schedule_.micro_batches; ++i) {
            if (!have_.contains({stage, 'w', p, i})) return false;
          }
        }
        return static_cast<int>(action.kind) ==
               static_cast<int>(ActionKind::kReduceTied) + steps_[stage]++;
    }
  }

  bool Deliver(const Action& send, int part, char what) {
    const Action& receive = *Next(send.peer);
    ++next_[static_cast<size_t>(send.peer)];
    return PartOf(send.peer, receive) == part && receive.micro_batch == send.micro_batch &&
           (receive.kind == ActionKind::kReceiveActivation) == (what == 'i') &&
           have_.insert({send.peer, what, part, receive.micro_batch}).second;
  }

  const PipelineSchedule& schedule_;
  std::mt19937& random_;
  const int parts_;
  std::vector<size_t> next_;
  std::set<Thing> have_;
  std::map<int, int> steps_;
};

class MutatedScheduleTest : public testing::TestWithParam<PipelineSchedule> {
 protected:
  MutatedScheduleTest() { RecordProperty("seed", static_cast<int>(seed_)); }

  const PipelineSchedule& good_ = GetParam();
  const unsigned seed_ = std::random_device{}();
  std::mt19937 random_{seed_};
};

INSTANTIATE_TEST_SUITE_P(
    All, MutatedScheduleTest,
    testing::Values(MakePipelineSchedule(Type::kGpipe, 3, 3, 1),
                    MakePipelineSchedule(Type::kOneForwardOneBackward, 3, 4, 1),
                    MakePipelineSchedule(Type::kOneForwardOneBackward, 2, 3, 1),
                    MakePipelineSchedule(Type::kInterleaved, 3, 3, 2),
                    MakePipelineSchedule(Type::kInterleaved, 2, 3, 2),
                    MakePipelineSchedule(Type::kInterleaved, 1, 2, 2),
                    MakePipelineSchedule(Type::kZeroBubbleH1, 3, 4, 1)),
    [](const auto& tested) { return "Schedule" + std::to_string(tested.index); });

TEST_P(MutatedScheduleTest, CheckAgreesWithReplayAfterSwappingActions) {
  SCOPED_TRACE(seed_);
  ASSERT_TRUE(Replay(good_, random_).Works());
  int found = 0;
  for (size_t s = 0; s < good_.actions.size(); ++s) {
    for (size_t i = 0; i < good_.actions[s].size(); ++i) {
      for (size_t k = i + 1; k < good_.actions[s].size(); ++k) {
        PipelineSchedule bad = good_;
        std::swap(bad.actions[s][i], bad.actions[s][k]);
        const std::string wrong = CheckSchedule(bad);
        ASSERT_EQ(wrong.empty(), Replay(bad, random_).Works())
            << Described(bad) << ", stage " << s << ": " << i << " and " << k << ": " << wrong;
        found += !wrong.empty();
      }
    }
  }
  EXPECT_GT(found, 0);
}

TEST_P(MutatedScheduleTest, CheckAgreesWithReplayAfterMovingAction) {
  SCOPED_TRACE(seed_);
  for (size_t s = 0; s < good_.actions.size(); ++s) {
    const std::vector<Action>& actions = good_.actions[s];
    for (size_t from = 0; from < actions.size(); ++from) {
      for (size_t to = 0; to < actions.size(); ++to) {
        PipelineSchedule bad = good_;
        bad.actions[s].erase(bad.actions[s].begin() + static_cast<std::ptrdiff_t>(from));
        bad.actions[s].insert(bad.actions[s].begin() + static_cast<std::ptrdiff_t>(to),
                              actions[from]);
        const std::string wrong = CheckSchedule(bad);
        ASSERT_EQ(wrong.empty(), Replay(bad, random_).Works())
            << Described(bad) << ", stage " << s << ": " << from << " to " << to << ": " << wrong;
      }
    }
  }
}

TEST_P(MutatedScheduleTest, FindsMissingAndRepeatedActions) {
  for (size_t s = 0; s < good_.actions.size(); ++s) {
    for (size_t i = 0; i < good_.actions[s].size(); ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      PipelineSchedule less = good_;
      less.actions[s].erase(less.actions[s].begin() + at);
      EXPECT_NE(CheckSchedule(less), "") << "without " << i << " of stage " << s;
      PipelineSchedule more = good_;
      more.actions[s].insert(more.actions[s].begin() + at, good_.actions[s][i]);
      EXPECT_NE(CheckSchedule(more), "") << "twice " << i << " of stage " << s;
    }
  }
}

TEST_P(MutatedScheduleTest, FindsWrongNumbers) {
  for (size_t s = 0; s < good_.actions.size(); ++s) {
    for (size_t i = 0; i + 3 < good_.actions[s].size(); ++i) {
      for (int by : {-1, 1, 100}) {
        for (int Action::*number : {&Action::micro_batch, &Action::chunk, &Action::peer}) {
          const std::string name = ActionName(good_.actions[s][i]);
          const bool has_peer = name.find_first_of("<>") != std::string::npos;
          if (number == &Action::peer && !has_peer) continue;
          PipelineSchedule bad = good_;
          bad.actions[s][i].*number += by;
          EXPECT_NE(CheckSchedule(bad), "") << name << " of stage " << s;
        }
      }
    }
  }
}

TEST(CheckScheduleTest, NamesStageActionAndProblem) {
  const PipelineSchedule good = MakePipelineSchedule(Type::kOneForwardOneBackward, 2, 2, 1);
  // Stage 0: F0 SA0>1 F1 SA1>1 RG0<1 B0 RG1<1 B1 ..., stage 1: RA0<0 RA1<0 F0 B0 SG0>0 F1 B1 SG1>0
  // ...
  ASSERT_EQ(ActionName(good.actions[0][4]), "RG0<1");
  ASSERT_EQ(ActionName(good.actions[1][1]), "RA1<0");
  const auto mutated = [&](const std::function<void(PipelineSchedule&)>& mutate) {
    PipelineSchedule bad = good;
    mutate(bad);
    return CheckSchedule(bad);
  };
  EXPECT_EQ(mutated([](auto& bad) { std::swap(bad.actions[0][4], bad.actions[0][5]); }),
            "stage 0, action 4 (B0): its gradient is not available yet");
  EXPECT_EQ(mutated([](auto& bad) { bad.actions[0].erase(bad.actions[0].begin() + 3); }),
            "stage 0: of micro-batch 1 in chunk 0 the sending of its output is missing");
  EXPECT_EQ(mutated([](auto& bad) { bad.actions[1][2].micro_batch = 1; }),
            "stage 1, action 3 (B0): its forward pass is not available yet");
  EXPECT_EQ(mutated([](auto& bad) { bad.actions[1][2].chunk = 1; }),
            "stage 1, action 2 (F0/1): the stage has no such chunk");
  EXPECT_EQ(mutated([](auto& bad) { bad.actions.pop_back(); }),
            "there are lists for 1 of 2 stages");
  EXPECT_EQ(mutated([](auto& bad) { bad.actions[1].pop_back(); }),
            "stage 1, action 7 (SG1>0): the last three actions must be to reduce tied, to reduce "
            "data and to step");
}

TEST(CheckScheduleTest, FindsCrossingSends) {
  // This is 1F1B as it is often written, which is correct only if sends are buffered.
  PipelineSchedule crossing = MakePipelineSchedule(Type::kOneForwardOneBackward, 2, 2, 1);
  std::vector<Action>& second = crossing.actions[1];
  const Action receive = second[1];
  ASSERT_EQ(ActionName(receive), "RA1<0");
  second.erase(second.begin() + 1);
  second.insert(second.begin() + 4, receive);
  ASSERT_EQ(ActionName(second[3]), "SG0>0");
  EXPECT_EQ(CheckSchedule(crossing),
            "stage 0 is at SA1>1 and stage 1 at SG0>0: these do not match, and neither stage "
            "can continue");
}

TEST(CheckScheduleTest, FindsCircularWait) {
  // Each stage receives just before it computes. If sends block, every stage waits for the next
  // stage.
  PipelineSchedule ring = MakeForwardSchedule(3, 3, 2);
  ASSERT_EQ(CheckSchedule(ring), "");
  for (std::vector<Action>& actions : ring.actions) {
    std::vector<Action> lazy, received;
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kReceiveActivation) {
        received.push_back(action);
        continue;
      }
      const auto own = std::find_if(received.begin(), received.end(), [&](const Action& receive) {
        return receive.micro_batch == action.micro_batch && receive.chunk == action.chunk;
      });
      if (action.kind == ActionKind::kForward && own != received.end()) lazy.push_back(*own);
      lazy.push_back(action);
    }
    actions = lazy;
  }
  EXPECT_EQ(CheckSchedule(ring),
            "stages wait forever: stage 0 at SA2>1, stage 1 at SA1>2, stage 2 at SA0>0");
}

}  // namespace
}  // namespace dslaunch::pipeline_schedule_check_test
