#include <gmock/gmock.h>

#include <algorithm>

#include "trainer/pipeline/schedule.h"

namespace dslaunch::pipeline_schedule_test {
namespace {

using ::testing::ElementsAre;
using Type = PipelineScheduleType;

std::string Names(const std::vector<Action>& actions) {
  std::string names;
  for (const Action& action : actions) names += (names.empty() ? "" : " ") + ActionName(action);
  return names;
}

bool Computes(const Action& action) {
  return action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward ||
         action.kind == ActionKind::kBackwardInput || action.kind == ActionKind::kBackwardWeight;
}

// Returns the names of each stage's computing actions.
std::vector<std::string> Computing(const PipelineSchedule& schedule) {
  std::vector<std::string> names;
  for (std::vector<Action> actions : schedule.actions) {
    std::erase_if(actions, [](const Action& action) { return !Computes(action); });
    names.push_back(Names(actions));
  }
  return names;
}

int Count(const std::vector<Action>& actions, ActionKind kind) {
  return static_cast<int>(std::count_if(actions.begin(), actions.end(),
                                        [&](const Action& action) { return action.kind == kind; }));
}

// The expected orders come from PyTorch's schedules (torch.distributed.pipelining 2.11), and are
// in dslaunch's notation.
TEST(PipelineScheduleTest, ComputesInPyTorchsOrder) {
  EXPECT_THAT(Computing(MakePipelineSchedule(Type::kGpipe, 2, 3, 1)),
              ElementsAre("F0 F1 F2 B0 B1 B2", "F0 F1 F2 B0 B1 B2"));
  EXPECT_THAT(
      Computing(MakePipelineSchedule(Type::kOneForwardOneBackward, 4, 6, 1)),
      ElementsAre("F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5",  //
                  "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5", "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5",
                  "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"));
  EXPECT_THAT(Computing(MakePipelineSchedule(Type::kInterleaved, 2, 4, 2)),
              ElementsAre("F0 F1 F0/1 F1/1 F2 B0/1 F3 B1/1 F2/1 B0 F3/1 B1 B2/1 B3/1 B2 B3",
                          "F0 F1 F0/1 B0/1 F1/1 B1/1 F2 B0 F3 B1 F2/1 B2/1 F3/1 B3/1 B2 B3"));
  EXPECT_THAT(Computing(MakePipelineSchedule(Type::kZeroBubbleH1, 3, 5, 1)),
              ElementsAre("F0 F1 F2 I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4",
                          "F0 F1 I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4",
                          "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4"));
}

TEST(PipelineScheduleTest, EnlargesRoundsForUnevenMicroBatches) {
  // PyTorch has the same order: one round of six for four stages.
  EXPECT_EQ(Computing(MakePipelineSchedule(Type::kInterleaved, 4, 6, 2))[3],
            "F0 F1 F2 F3 F4 F5 F0/1 B0/1 F1/1 B1/1 F2/1 B2/1 F3/1 B3/1 F4/1 B4/1 F5/1 B5/1 "
            "B0 B1 B2 B3 B4 B5");
  // A round of two and a round of three, which PyTorch refuses.
  EXPECT_EQ(Computing(MakeForwardSchedule(2, 5, 2))[0], "F0 F1 F0/1 F1/1 F2 F3 F4 F2/1 F3/1 F4/1");
}

TEST(PipelineScheduleTest, AcceptsFewerMicroBatchesThanStages) {
  EXPECT_THAT(Computing(MakePipelineSchedule(Type::kOneForwardOneBackward, 4, 2, 1)),
              ElementsAre("F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"));
  EXPECT_THAT(Computing(MakePipelineSchedule(Type::kInterleaved, 3, 1, 2)),
              ElementsAre("F0 F0/1 B0/1 B0", "F0 F0/1 B0/1 B0", "F0 F0/1 B0/1 B0"));
}

TEST(PipelineScheduleTest, BeginsReceivesBeforeOverlappingComputing) {
  const PipelineSchedule schedule = MakePipelineSchedule(Type::kOneForwardOneBackward, 2, 3, 1);
  EXPECT_EQ(Names(schedule.actions[0]),
            "F0 SA0>1 F1 SA1>1 RG0<1 B0 F2 SA2>1 RG1<1 B1 RG2<1 B2 reduce tied reduce data step");
  EXPECT_EQ(Names(schedule.actions[1]),
            "RA0<0 RA1<0 F0 B0 SG0>0 F1 RA2<0 B1 SG1>0 F2 B2 SG2>0 reduce tied reduce data step");
}

TEST(PipelineScheduleTest, SendsFromLastStageToFirstBetweenChunks) {
  const PipelineSchedule schedule = MakePipelineSchedule(Type::kInterleaved, 2, 1, 2);
  EXPECT_EQ(Names(schedule.actions[0]),
            "F0 SA0>1 RA0/1<1 F0/1 SA0/1>1 RG0/1<1 B0/1 SG0/1>1 RG0<1 B0 reduce tied reduce data "
            "step");
  EXPECT_EQ(Names(schedule.actions[1]),
            "RA0<0 F0 SA0>0 RA0/1<0 F0/1 B0/1 SG0/1>0 RG0<0 B0 SG0>0 reduce tied reduce data step");
}

TEST(PipelineScheduleTest, OneStageSendsNothing) {
  EXPECT_EQ(Names(MakePipelineSchedule(Type::kOneForwardOneBackward, 1, 4, 1).actions[0]),
            "F0 B0 F1 B1 F2 B2 F3 B3 reduce tied reduce data step");
  EXPECT_EQ(Names(MakePipelineSchedule(Type::kInterleaved, 1, 2, 2).actions[0]),
            "F0 F0/1 B0/1 F1 B0 F1/1 B1/1 B1 reduce tied reduce data step");
  EXPECT_EQ(Names(MakeForwardSchedule(1, 2, 2).actions[0]), "F0 F0/1 F1 F1/1");
}

// The cases are taken from DeepSpeed's tests of its schedules.
TEST(PipelineScheduleTest, FirstAndLastStageExchangeOneWayOnly) {
  for (int micro_batches : {1, 3, 4, 8, 10}) {
    const PipelineSchedule schedule =
        MakePipelineSchedule(Type::kOneForwardOneBackward, 3, micro_batches, 1);
    for (size_t s = 0; s < 3; ++s) {
      const std::vector<Action>& actions = schedule.actions[s];
      EXPECT_EQ(Count(actions, ActionKind::kForward), micro_batches);
      EXPECT_EQ(Count(actions, ActionKind::kBackward), micro_batches);
      EXPECT_EQ(Count(actions, ActionKind::kReceiveActivation), s == 0 ? 0 : micro_batches);
      EXPECT_EQ(Count(actions, ActionKind::kSendGradient), s == 0 ? 0 : micro_batches);
      EXPECT_EQ(Count(actions, ActionKind::kSendActivation), s == 2 ? 0 : micro_batches);
      EXPECT_EQ(Count(actions, ActionKind::kReceiveGradient), s == 2 ? 0 : micro_batches);
    }
    const PipelineSchedule forward = MakeForwardSchedule(3, micro_batches, 1);
    for (size_t s = 0; s < 3; ++s) {
      const std::vector<Action>& actions = forward.actions[s];
      EXPECT_EQ(Count(actions, ActionKind::kForward), micro_batches);
      EXPECT_EQ(Count(actions, ActionKind::kReceiveActivation), s == 0 ? 0 : micro_batches);
      EXPECT_EQ(Count(actions, ActionKind::kSendActivation), s == 2 ? 0 : micro_batches);
      EXPECT_EQ(actions.size(), static_cast<size_t>((s == 1 ? 3 : 2) * micro_batches))
          << "and nothing else";
    }
  }
}

}  // namespace
}  // namespace dslaunch::pipeline_schedule_test
