#include "agent/core/attempt_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::attempt_workers_test {
namespace {

TEST(AttemptWorkersTest, CollectsEventsOfSupervisor) {
  pb::SpawnWorkers specs;
  for (uint32_t i = 0; i < 2; ++i) {
    specs.add_workers()->set_local_rank(i);
    specs.mutable_workers(static_cast<int>(i))->set_rank(4 + i);
    specs.mutable_workers(static_cast<int>(i))->set_stdout_path("/logs/rank/stdout.log");
  }
  specs.set_share_cores(true);
  AttemptWorkers workers(3, pb::Assignment(), specs);
  EXPECT_EQ(workers.Find(1)->rank, 5u);
  EXPECT_EQ(workers.Find(1)->folder, "/logs/rank");
  EXPECT_EQ(workers.Find(2), nullptr);
  EXPECT_FALSE(workers.OnSpawned(0, 100));
  EXPECT_FALSE(workers.OnSpawned(0, 100));
  EXPECT_FALSE(workers.OnSpawned(9, 100));
  EXPECT_TRUE(workers.OnSpawned(1, 101));
  EXPECT_THAT(workers.Started().pids(), ::testing::ElementsAre(100, 101));
  EXPECT_EQ(workers.Started().attempt(), 3u);
  workers.OnStatus(1, *StatusLine::Parse(R"({"event":"step","step":8})"), Clock::now());
  EXPECT_FALSE(workers.OnEnded(1, 0));
  EXPECT_EQ(workers.RunningPids(), std::vector<pid_t>{100});
  ASSERT_EQ(workers.Progress(Clock::now()).size(), 1u);
  EXPECT_TRUE(workers.Progress(Clock::now())[0].shares_cores());
  EXPECT_TRUE(workers.Progress(Clock::now())[0].ended());
  EXPECT_FALSE(workers.OnEnded(1, 0));  // a second end of the same rank
  EXPECT_TRUE(workers.OnEnded(0, 0));
}

TEST(AttemptWorkersTest, SucceedsOnlyIfEveryWorkerDid) {
  pb::SpawnWorkers specs;
  for (uint32_t i = 0; i < 2; ++i) specs.add_workers()->set_local_rank(i);
  AttemptWorkers workers(1, pb::Assignment(), specs);
  EXPECT_FALSE(workers.OnEnded(0, std::nullopt));
  EXPECT_FALSE(workers.OnEnded(1, 0));
}

TEST(AttemptWorkersTest, ToleratesLossOfRanksThatAllowIt) {
  pb::SpawnWorkers specs;
  for (uint32_t i = 0; i < 3; ++i) specs.add_workers()->set_local_rank(i);
  AttemptWorkers workers(1, pb::Assignment(), specs);
  const StatusLine ready = *StatusLine::Parse(R"({"event":"ready","loss_tolerated":true})");
  workers.OnStatus(1, ready, Clock::now());
  workers.OnStatus(2, ready, Clock::now());
  AttemptWorkers preempted = workers, failed = workers, killed = workers;
  EXPECT_FALSE(workers.OnEnded(1, std::nullopt));
  EXPECT_FALSE(workers.OnEnded(0, 0));
  EXPECT_TRUE(workers.OnEnded(2, std::nullopt));
  EXPECT_FALSE(workers.AllSaved());

  // The rank exits by itself with an error, so the run has failed.
  EXPECT_FALSE(failed.OnEnded(1, 65));
  EXPECT_FALSE(failed.OnEnded(2, 0));
  EXPECT_FALSE(failed.OnEnded(0, 0));
  // The loss of rank 0 is not tolerated, because rank 0 has not allowed it.
  EXPECT_FALSE(killed.OnEnded(0, std::nullopt));
  EXPECT_FALSE(killed.OnEnded(1, 0));
  EXPECT_FALSE(killed.OnEnded(2, 0));

  preempted.OnEnded(1, std::nullopt);
  preempted.OnEnded(0, 85);
  EXPECT_FALSE(preempted.AllSaved());
  preempted.OnEnded(2, 85);
  EXPECT_TRUE(preempted.AllSaved());
}

TEST(AttemptWorkersTest, AllSavedOnlyIfEveryWorkerExitedWith85) {
  EXPECT_FALSE(AttemptWorkers().AllSaved());
  pb::SpawnWorkers specs;
  for (uint32_t i = 0; i < 2; ++i) specs.add_workers()->set_local_rank(i);
  AttemptWorkers workers(1, pb::Assignment(), specs);
  workers.OnEnded(0, 85);
  EXPECT_FALSE(workers.AllSaved());
  AttemptWorkers killed = workers;
  killed.OnEnded(1, std::nullopt);
  EXPECT_FALSE(killed.AllSaved());
  workers.OnEnded(1, 85);
  EXPECT_TRUE(workers.AllSaved());
}

}  // namespace
}  // namespace dslaunch::attempt_workers_test
