#include "agent/samples/node_sampler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

#include "base/deadline.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::node_sampler_test {
namespace {

constexpr milliseconds kPatience(20'000);

class NodeSamplerTest : public ::testing::Test {
 protected:
  NodeSamplerTest() {
    pb::Assignment assignment;
    assignment.set_first_rank(4);
    assignment.set_world_size(6);
    pb::SpawnWorkers specs;
    for (uint32_t i = 0; i < 2; ++i) {
      pb::WorkerSpec& spec = *specs.add_workers();
      spec.set_rank(4 + i);
      spec.set_local_rank(i);
      spec.set_stdout_path(folder_ / "stdout.log");
    }
    ranks_ = AttemptWorkers(1, assignment, specs);
    ranks_.OnSpawned(0, ::getpid());
  }
  bool RunUntilSamples(size_t count) {
    const Deadline deadline = Deadline::After(kPatience);
    while (samples_.size() < count && !deadline.Expired()) {
      loop_.restart();
      loop_.run_for(milliseconds(10));
    }
    return samples_.size() >= count;
  }
  static pb::SampleRequest Every(uint32_t ms, bool last_lines = false) {
    pb::SampleRequest request;
    request.set_every_ms(ms);
    request.set_last_lines(last_lines);
    return request;
  }

  asio::io_context loop_;
  const TempDir folder_;
  AttemptWorkers ranks_;
  std::vector<pb::NodeSample> samples_;
  std::string nvidia_smi_ = DSLAUNCH_FAKE_NVIDIA_SMI;
  NodeSampler sampler_{loop_, [this]() -> const AttemptWorkers& { return ranks_; },
                       [this](pb::NodeSample sample) { samples_.push_back(std::move(sample)); },
                       [this] { return nvidia_smi_; }};
};

TEST_F(NodeSamplerTest, TakesNoSamplesUnlessWanted) {
  sampler_.Hasten();
  sampler_.Want({});
  loop_.run_for(milliseconds(50));
  EXPECT_TRUE(samples_.empty());
}

TEST_F(NodeSamplerTest, SamplesRanksAndTheirDevices) {
  folder_.Write("stdout.log", "loading\nstep 7\n");
  ranks_.OnStatus(0, StatusLine::Parse(R"({"event":"step","step":7})").value(), Clock::now());
  sampler_.SetDevices({"0", "1"});
  sampler_.Want(Every(1, /*last_lines=*/true));
  ASSERT_TRUE(RunUntilSamples(1));
  while (samples_.back().devices_size() == 0) ASSERT_TRUE(RunUntilSamples(samples_.size() + 1));
  const pb::NodeSample& sample = samples_.back();
  EXPECT_EQ(sample.attempt(), 1u);
  EXPECT_GT(sample.machine().cores(), 0u);
  ASSERT_EQ(sample.ranks_size(), 2);
  const pb::RankSample& rank = sample.ranks(0);
  EXPECT_EQ(rank.rank(), 4u);
  EXPECT_TRUE(rank.running() && rank.readable());
  EXPECT_GT(rank.memory_bytes(), 1u << 20);
  EXPECT_EQ(rank.step(), 7u);
  EXPECT_EQ(rank.last_line(), "step 7");
  EXPECT_EQ(rank.stdout_bytes(), 15u);
  ASSERT_EQ(rank.devices_size(), 1);
  EXPECT_EQ(rank.devices(0), 0u);
  EXPECT_FALSE(sample.ranks(1).running());
  EXPECT_EQ(sample.ranks(1).devices_size(), 0);  // the node has only one device
}

TEST_F(NodeSamplerTest, LimitsRate) {
  nvidia_smi_ = "";
  sampler_.Want(Every(1));
  const Clock::time_point begin = Clock::now();
  ASSERT_TRUE(RunUntilSamples(3));
  EXPECT_GE(Clock::now() - begin, 2 * NodeSampler::kShortestInterval);
}

TEST_F(NodeSamplerTest, StopsWhenNotWantedAnyMore) {
  nvidia_smi_ = "";
  sampler_.Want(Every(1));
  ASSERT_TRUE(RunUntilSamples(1));
  sampler_.Want({});
  const size_t before = samples_.size();
  loop_.restart();
  loop_.run_for(2 * NodeSampler::kShortestInterval);
  EXPECT_EQ(samples_.size(), before);
}

}  // namespace
}  // namespace dslaunch::node_sampler_test
