#include "cli/top/job_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cli/top/fake_job.h"

namespace dslaunch::job_model_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

pb::NodeEvent Ended(uint32_t rank, int exit_code, int signal = 0, bool stopping = false) {
  pb::NodeEvent event;
  pb::WorkerEnded& ended = *event.mutable_worker_ended();
  ended.set_attempt(1);
  ended.set_rank(rank);
  ended.set_exit_code(exit_code);
  ended.set_signal(signal);
  ended.set_stopping(stopping);
  return event;
}

TEST(JobModelTest, ComputesRatesFromTwoSamples) {
  FakeJob job(2, 4, /*with_gpus=*/true);
  job.Turn();
  EXPECT_FALSE(job.model().nodes()[1].rates.cpu);
  EXPECT_EQ(job.model().KnownNodes(2), 0u);
  job.Turn();
  EXPECT_EQ(job.model().KnownNodes(2), 2u);
  EXPECT_DOUBLE_EQ(*job.model().nodes()[1].rates.cpu, 6);
  EXPECT_DOUBLE_EQ(*job.model().nodes()[1].rates.network_bytes, 1 << 30);
  const ModelRank& rank = job.model().ranks().at(7);
  EXPECT_EQ(rank.node, 1u);
  EXPECT_DOUBLE_EQ(*rank.rates.cpu, 1.5);
  EXPECT_DOUBLE_EQ(*rank.rates.network_bytes, 1 << 27);
  EXPECT_DOUBLE_EQ(*rank.rates.disk_bytes, 1 << 18);
}

TEST(JobModelTest, CountsFallingCountersAsNoUse) {
  FakeJob job(1, 1, false);
  job.Turn();
  job.rank(0).set_peer_sent_bytes(0);
  job.rank(0).set_cpu_ms(0);
  job.Turn();
  job.rank(0).set_cpu_ms(0);
  job.rank(0).set_peer_sent_bytes(0);
  job.Turn();
  EXPECT_EQ(*job.model().ranks().at(0).rates.cpu, 0);
  EXPECT_EQ(*job.model().ranks().at(0).rates.network_bytes, 0);
}

TEST(JobModelTest, ReportsProgressOfStatusLines) {
  FakeJob job(1, 2, false);
  EXPECT_EQ(job.model().StateText(), "running");
  EXPECT_EQ(job.model().progress().step, 1204u);
  EXPECT_EQ(job.model().progress().total_steps, 5000u);
  EXPECT_EQ(job.model().progress().loss, 2.3125);
  EXPECT_EQ(job.model().progress().tokens_per_s, 51200);
  job.Send("not a status line");
  EXPECT_EQ(job.model().progress().step, 1204u);
}

TEST(JobModelTest, SanitizesTextsOfNodes) {
  FakeJob job(1, 1, true);
  job.rank(0).set_last_line("\x1b]0;title\x07\x1b[31mred\r");
  job.rank(0).set_exchange("all_reduce\x1b[2J");
  job.device(0).set_name("\x1b[1mGPU");
  job.sample(0).set_device_trouble("\x1b[5mno driver");
  job.Turn();
  const ModelRank& rank = job.model().ranks().at(0);
  EXPECT_EQ(rank.sample.last_line(), "red");
  EXPECT_EQ(rank.sample.exchange(), "all_reduce");
  EXPECT_EQ(job.model().nodes()[0].sample->devices(0).name(), "GPU");
  EXPECT_EQ(job.model().nodes()[0].trouble, "no driver");
  pb::NodeEvent notice;
  notice.mutable_notice()->set_message("\x1b[2Jnotice");
  job.model().OnEvent(0, notice, job.now());
  EXPECT_THAT(job.model().notice(), Not(HasSubstr("\x1b")));
}

TEST(JobModelTest, DistinguishesFailedAndStoppedRanks) {
  FakeJob job(1, 4, false);
  job.model().OnEvent(0, Ended(0, 0), job.now());
  job.model().OnEvent(0, Ended(1, 3), job.now());
  job.model().OnEvent(0, Ended(2, 0, 9), job.now());
  job.model().OnEvent(0, Ended(3, 0, 15, /*stopping=*/true), job.now());
  job.model().OnEvent(0, Ended(99, 1), job.now());
  const auto& ranks = job.model().ranks();
  EXPECT_TRUE(ranks.at(0).ended && !ranks.at(0).failed);
  EXPECT_TRUE(ranks.at(1).failed);
  EXPECT_EQ(ranks.at(1).end, "exit code 3");
  EXPECT_EQ(ranks.at(2).end, "SIGKILL");
  EXPECT_TRUE(ranks.at(3).ended && !ranks.at(3).failed);
  EXPECT_EQ(ranks.size(), 4u);
}

TEST(JobModelTest, ForgetsRanksOfEarlierAttempt) {
  FakeJob job(2, 2, false);
  job.Turn();
  pb::NodeEvent restarting;
  restarting.mutable_restarting()->set_reason("rank 1 failed");
  job.model().OnEvent(0, restarting, job.now());
  EXPECT_EQ(job.model().StateText(), "restarting");
  EXPECT_EQ(job.model().notice(), "rank 1 failed");
  pb::NodeEvent started;
  started.mutable_started()->set_attempt(2);
  started.mutable_started()->set_world_size(1);
  started.mutable_started()->set_restart_count(1);
  started.mutable_started()->add_pids(5);
  job.model().OnEvent(0, started, job.now());
  EXPECT_EQ(job.model().ranks().size(), 1u);
  EXPECT_EQ(job.model().restarts(), 1u);
  job.Turn();  // sends samples of attempt 1, which are old
  EXPECT_EQ(job.model().ranks().size(), 1u);
  EXPECT_FALSE(job.model().ranks().at(0).has_sample);
}

TEST(JobModelTest, CountsLostNodesAsKnown) {
  FakeJob job(2, 1, false);
  job.model().OnLost(1, "node1: no route to host");
  EXPECT_EQ(job.model().KnownNodes(2), 1u);
  EXPECT_EQ(job.model().nodes()[1].trouble, "node1: no route to host");
  job.model().OnReached(1);
  EXPECT_EQ(job.model().nodes()[1].trouble, "");
}

}  // namespace
}  // namespace dslaunch::job_model_test
