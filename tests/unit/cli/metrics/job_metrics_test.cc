#include "cli/metrics/job_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::job_metrics_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Adds a node with the ranks from `first_rank` on, each of which has a GPU.
void AddNode(JobMetrics& job, size_t node, uint32_t first_rank, uint32_t ranks,
             Clock::time_point now) {
  pb::NodeEvent started;
  started.mutable_started()->set_attempt(2);
  started.mutable_started()->set_restart_count(1);
  started.mutable_started()->set_first_rank(first_rank);
  started.mutable_started()->set_world_size(1'000);
  for (uint32_t i = 0; i < ranks; ++i) started.mutable_started()->add_pids(100);
  job.OnEvent(node, started, now);
  pb::NodeEvent event;
  pb::NodeSample& sample = *event.mutable_sample();
  sample.mutable_machine()->set_cpu_ms(5'500);
  pb::NodeEvent goodput;
  for (uint32_t i = 0; i < ranks; ++i) {
    pb::RankSample& rank = *sample.add_ranks();
    rank.set_rank(first_rank + i);
    rank.set_local_rank(i);
    rank.set_running(true);
    rank.set_readable(true);
    rank.set_memory_bytes(1 << 20);
    rank.add_devices(i);
    pb::DeviceSample& device = *sample.add_devices();
    device.set_index(i);
    device.set_uuid("GPU-" + std::to_string(node) + "-" + std::to_string(i));
    device.set_power_w(412.5);
    pb::RankGoodput& times = *goodput.mutable_goodput()->add_ranks();
    for (uint64_t us = 1; us <= 11; ++us) times.add_us(us * 1'000'000);
    times.set_saved_age_us(2'000'000);
    times.set_saved_step(30);
    times.set_copied_age_us(1'000'000);
    times.set_copied_step(31);
    pb::NodeEvent status;
    status.mutable_status()->set_rank(first_rank + i);
    status.mutable_status()->set_line(
        R"({"event":"step","step":31,"total_steps":100,"loss":0.25,"tokens_per_s":900})");
    job.OnEvent(node, status, now);
  }
  job.OnEvent(node, event, now);
  job.OnEvent(node, goodput, now);
}

TEST(JobMetricsTest, HasRanksNodesAndDevices) {
  const Clock::time_point now = Clock::now();
  JobMetrics job("j1", {"n1", "n\"2"}, 1'500'000);
  AddNode(job, 0, 0, 2, now);
  AddNode(job, 1, 2, 2, now);
  const std::string text =
      MetricsText({&job}, MetricsFormat::kOpenMetrics, now + milliseconds(500));
  for (const char* line :
       {"dslaunch_job_start_time_seconds{job=\"j1\"} 1500\n",
        "dslaunch_job_attempt{job=\"j1\"} 2\n", "dslaunch_job_restarts_total{job=\"j1\"} 1\n",
        "dslaunch_node_cpu_seconds_total{job=\"j1\",node=\"n1\"} 5.5\n",
        "dslaunch_rank_step{job=\"j1\",node=\"n\\\"2\",rank=\"3\",local_rank=\"1\","
        "gpu_uuid=\"GPU-1-1\"} 31\n",
        "dslaunch_rank_loss{job=\"j1\",node=\"n1\",rank=\"0\",local_rank=\"0\","
        "gpu_uuid=\"GPU-0-0\"} 0.25\n",
        "gpu_uuid=\"GPU-0-0\",bucket=\"productive\"} 5\n",
        "dslaunch_rank_checkpoint_age_seconds{job=\"j1\",node=\"n1\",rank=\"0\",local_rank=\"0\","
        "gpu_uuid=\"GPU-0-0\"} 2.5\n",
        "dslaunch_rank_memory_copy_age_seconds{job=\"j1\",node=\"n1\",rank=\"0\",local_rank=\"0\","
        "gpu_uuid=\"GPU-0-0\"} 1.5\n",
        "dslaunch_rank_memory_copy_step{job=\"j1\",node=\"n1\",rank=\"0\",local_rank=\"0\","
        "gpu_uuid=\"GPU-0-0\"} 31\n",
        "dslaunch_gpu_power_watts{job=\"j1\",node=\"n1\",rank=\"1\",local_rank=\"1\",gpu=\"1\","
        "gpu_uuid=\"GPU-0-1\"} 412.5\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("samples_per_second"))) << "not reported";
  EXPECT_TRUE(text.ends_with("# EOF\n"));
}

TEST(JobMetricsTest, NodeThatEndedHasNoRanks) {
  const Clock::time_point now = Clock::now();
  JobMetrics job("j1", {"n1"}, 0);
  AddNode(job, 0, 0, 2, now);
  pb::NodeEvent done;
  done.mutable_done();
  job.OnEvent(0, done, now);
  const std::string text = MetricsText({&job}, MetricsFormat::kPrometheus, now);
  EXPECT_THAT(text, HasSubstr("dslaunch_node_up{job=\"j1\",node=\"n1\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("dslaunch_rank")));
}

TEST(JobMetricsTest, StepOfForeignRankIsIgnored) {
  const Clock::time_point now = Clock::now();
  JobMetrics job("j1", {"n1"}, 0);
  AddNode(job, 0, 4, 1, now);
  pb::NodeEvent status;
  status.mutable_status()->set_rank(3);
  status.mutable_status()->set_line(R"({"event":"step","step":77})");
  job.OnEvent(0, status, now);
  EXPECT_THAT(MetricsText({&job}, MetricsFormat::kPrometheus, now), Not(HasSubstr(" 77\n")));
}

// Prints the time that rendering takes, which should be below 50 ms.
TEST(JobMetricsTest, RendersAThousandRanks) {
  const Clock::time_point now = Clock::now();
  std::vector<std::string> names;
  for (int node = 0; node < 125; ++node) names.push_back("node" + std::to_string(node));
  JobMetrics job("20261129-055031-55b7d4", names, 0);
  for (uint32_t node = 0; node < 125; ++node) AddNode(job, node, node * 8, 8, now);
  const Clock::time_point begin = Clock::now();
  const std::string text = MetricsText({&job}, MetricsFormat::kOpenMetrics, now);
  const auto took = std::chrono::duration<double, std::milli>(Clock::now() - begin);
  std::printf("1000 ranks: %zu bytes in %.1f ms\n", text.size(), took.count());
  size_t ranks = 0;
  for (size_t at = 0; (at = text.find("\ndslaunch_rank_step{", at)) != std::string::npos; ++at)
    ++ranks;
  EXPECT_EQ(ranks, 1'000u);
}

}  // namespace
}  // namespace dslaunch::job_metrics_test
