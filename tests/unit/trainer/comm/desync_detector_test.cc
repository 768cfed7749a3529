// Tests ranks that diverge or are slow, with real process groups.
#include "trainer/comm/desync_detector.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdlib>
#include <latch>
#include <thread>

#include "dslaunch/engine.h"
#include "tests/unit/trainer/ranks.h"
#include "trainer/config/engine_config.h"
#include "trainer/parallel/shard_exchange.h"

namespace dslaunch::desync_detector_test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr DesyncDetector::Patience kPatience = {.quiet = milliseconds(500),
                                                .limit = std::chrono::minutes(5)};

// Starts watching on all ranks at the same time, so that their waits are reported at the same time
// too.
void Watch(const ProcessGroup& group) {
  group.desync_detector().Watch(kPatience);
  group.Barrier();
}

void Gather(const ProcessGroup& group, const std::string& what) {
  const at::Tensor flat = at::zeros({8 * group.world_size()});
  ShardExchange(group).AllGather({flat, /*channel=*/0, what}).Wait();
}

void ExpectError(const std::exception_ptr& error, ExitCode code,
                 const testing::Matcher<std::string>& words) {
  ASSERT_TRUE(error);
  try {
    std::rethrow_exception(error);
  } catch (const TrainError& e) {
    EXPECT_EQ(e.code(), code);
    EXPECT_THAT(std::string(e.what()), words);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "not a TrainError: " << e.what();
  }
}

// Expects every rank to throw the same text.
void ExpectErrors(const std::vector<std::exception_ptr>& errors,
                  const testing::Matcher<std::string>& words) {
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    ExpectError(errors[rank], ExitCode::kBadInput, words);
  }
}

TEST(DesyncDetectorTest, ReportsGatherAgainstReduce) {
  ExpectErrors(RunRanks(3,
                        [](const ProcessGroup& group) {
                          Watch(group);
                          if (group.rank() == 1) return Gather(group, "the parameters of fc2");
                          at::Tensor tensor = at::zeros({4});
                          group.AllReduce(tensor);
                        }),
               AllOf(HasSubstr("ranks 0, 2: waiting for an all-reduce"),
                     HasSubstr("rank 1: waiting for the parameters of fc2")));
}

TEST(DesyncDetectorTest, ReportsOneGatherMore) {
  const auto errors = RunRanks(2, [](const ProcessGroup& group) {
    Watch(group);
    for (int i = 0; i < (group.rank() == 0 ? 3 : 4); ++i) Gather(group, "the parameters of fc1");
    group.Barrier();
  });
  ExpectErrors(errors, AllOf(HasSubstr("rank 0: waiting for a barrier"),
                             HasSubstr("rank 1: waiting for the parameters of fc1")));
}

TEST(DesyncDetectorTest, ReportsEndAgainstGather) {
  const auto errors = RunRanks(2, [](const ProcessGroup& group) {
    Watch(group);
    if (group.rank() == 0) Gather(group, "the parameters of fc1");
  });
  ExpectError(errors[0], ExitCode::kBadInput,
              AllOf(HasSubstr("rank 0: waiting for the parameters of fc1"),
                    HasSubstr("rank 1: waiting for the end of the program")));
}

TEST(DesyncDetectorTest, WaitsForSlowRank) {
  const auto errors = RunRanks(3, [](const ProcessGroup& group) {
    Watch(group);
    for (int round = 0; round < 3; ++round) {
      if (group.rank() == round) std::this_thread::sleep_for(3 * kPatience.quiet);
      Gather(group, "the parameters of fc1");
      group.Barrier();
    }
  });
  for (const std::exception_ptr& error : errors) EXPECT_EQ(TextOf(error), "");
}

TEST(DesyncDetectorTest, ReportsLongWaitOnStatusPipe) {
  int status[2];
  ASSERT_EQ(pipe(status), 0);
  setenv("DSLAUNCH_STATUS_FD", std::to_string(status[1]).c_str(), 1);
  const auto errors = RunRanks(2, [](const ProcessGroup& group) {
    Watch(group);
    if (group.rank() == 1) std::this_thread::sleep_for(3 * kPatience.quiet);
    Gather(group, "the parameters of fc1");
    std::this_thread::sleep_for(kPatience.quiet);
    group.Barrier();
  });
  unsetenv("DSLAUNCH_STATUS_FD");
  close(status[1]);
  for (const std::exception_ptr& error : errors) EXPECT_EQ(TextOf(error), "");
  char text[4096];
  const ssize_t size = read(status[0], text, sizeof text);
  close(status[0]);
  ASSERT_GT(size, 0);
  EXPECT_THAT(
      std::string(text, static_cast<size_t>(size)),
      AllOf(
          HasSubstr("{\"event\":\"wait\",\"exchange\":\"the parameters of fc1 (1)\",\"wait_s\":0."),
          HasSubstr("{\"event\":\"wait\",\"exchange\":\"\",\"wait_s\":0}")));
}

TEST(DesyncDetectorTest, NamesMissingRankAtLimit) {
  std::latch others_ended(2);
  const auto errors = RunRanks(3, [&](const ProcessGroup& group) {
    group.desync_detector().Watch({.quiet = milliseconds(200), .limit = milliseconds(1000)});
    if (group.rank() == 2) return others_ended.wait();
    try {
      Gather(group, "the parameters of fc2");
    } catch (...) {
      others_ended.count_down();
      throw;
    }
  });
  for (size_t rank : {0, 1}) {
    ExpectError(errors[rank], ExitCode::kTimedOut,
                HasSubstr("for the parameters of fc2, which rank 2 has not started"));
  }
}

// Ranks 0 and 1, ranks 2 and 3, ranks 0 and 2, and ranks 1 and 3 each form a group. Each rank waits
// for the next in a circle, although within each group the ranks agree.
TEST(DesyncDetectorTest, NamesGroupsOfCircle) {
  const auto errors = RunRanks(4, [](const ProcessGroup& world) {
    const size_t own = static_cast<size_t>(world.rank());
    const auto pair = [&](size_t first, size_t second) {
      ProcessGroup group = MakeSubgroup(world, {static_cast<int>(first), static_cast<int>(second)},
                                        std::to_string(first) + "," + std::to_string(second));
      group.desync_detector().Join(world.desync_detector().shared_from_this(), {first, second});
      return group;
    };
    const ProcessGroup row = pair(own & ~1u, own | 1u), column = pair(own & ~2u, own | 2u);
    row.desync_detector().Watch(kPatience);
    world.Barrier();
    at::Tensor tensor = at::zeros({4});
    (own == 0 || own == 3 ? row : column).AllReduce(tensor);
    (own == 0 || own == 3 ? column : row).AllReduce(tensor);
  });
  ExpectErrors(errors, AllOf(HasSubstr("rank 0: waiting for an all-reduce with ranks 0, 1"),
                             HasSubstr("rank 1: waiting for an all-reduce with ranks 1, 3"),
                             HasSubstr("rank 2: waiting for an all-reduce with ranks 0, 2"),
                             HasSubstr("rank 3: waiting for an all-reduce with ranks 2, 3")));
}

struct Net : torch::nn::Module {
  Net() {
    fc1 = register_module("fc1", torch::nn::Linear(4, 8));
    fc2 = register_module("fc2", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(at::tanh(fc1(x))); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

TEST(DesyncDetectorTest, ReportsExtraEvaluationOfOneRankAtStage3) {
  const auto errors = RunRanks(3, [](const ProcessGroup& group) {
    Watch(group);
    EngineConfig config;
    config.batch = {group.world_size(), 1, 1};
    config.optimizer.emplace().type = OptimizerConfig::Type::kSgd;
    config.zero.stage = 3;
    config.zero.param_persistence_threshold = 0;
    auto engine = Initialize(config, std::make_shared<Net>(), group);
    engine.SetTrain();
    for (int i = 0; i < 2; ++i) {
      engine.Backward(engine.Forward(at::ones({1, 4})).sum());
      engine.Step();
    }
    engine.SetEval();
    std::vector<double> sum = {0};
    for (int i = 0; i < (group.rank() == 2 ? 4 : 3); ++i) {
      sum[0] += engine.Forward(at::ones({1, 4})).sum().item<double>();
    }
    group.AllReduceSum(sum);
  });
  ExpectErrors(errors, AllOf(HasSubstr("ranks 0, 1: waiting for an all-reduce"),
                             HasSubstr("rank 2: waiting for the parameters of fc1")));
}

}  // namespace
}  // namespace dslaunch::desync_detector_test
