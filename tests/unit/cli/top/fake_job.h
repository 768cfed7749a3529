// Simulates a job whose nodes send the events that a viewer of a real job receives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/top/job_model.h"

namespace dslaunch {

class FakeJob {
 public:
  FakeJob(uint32_t nodes, uint32_t ranks_per_node, bool with_gpus)
      : nodes_(nodes), per_node_(ranks_per_node), model_(Names(nodes)) {
    for (uint32_t node = 0; node < nodes; ++node) {
      pb::NodeEvent event;
      pb::Started& started = *event.mutable_started();
      started.set_attempt(1);
      started.set_first_rank(node * per_node_);
      started.set_world_size(nodes * per_node_);
      for (uint32_t i = 0; i < per_node_; ++i) started.add_pids(static_cast<int>(100 + i));
      model_.OnReached(node);
      model_.OnEvent(node, event, now_);
      samples_.push_back(FirstSample(node, with_gpus));
    }
    Send(R"({"event":"step","step":1204,"total_steps":5000,"loss":2.3125,"tokens_per_s":51200})");
    pb::NodeEvent running;
    running.mutable_running()->set_attempt(1);
    model_.OnEvent(0, running, now_);
  }

  pb::NodeSample& sample(uint32_t node) { return samples_[node]; }
  pb::RankSample& rank(uint32_t rank) {
    return *samples_[rank / per_node_].mutable_ranks(static_cast<int>(rank % per_node_));
  }
  pb::DeviceSample& device(uint32_t rank) {
    return *samples_[rank / per_node_].mutable_devices(static_cast<int>(rank % per_node_));
  }
  JobModel& model() { return model_; }
  Clock::time_point now() const { return now_; }

  // Sends a status line of rank 0.
  void Send(const std::string& line) {
    pb::NodeEvent event;
    event.mutable_status()->set_line(line);
    model_.OnEvent(0, event, now_);
  }

  // Advances by two seconds, after which each node sends a sample. Each rank uses 1.5 cores.
  void Turn() {
    constexpr uint64_t kSeconds = 2;
    now_ += std::chrono::seconds(kSeconds);
    for (uint32_t node = 0; node < nodes_; ++node) {
      pb::NodeSample& sample = samples_[node];
      sample.set_clock_us(sample.clock_us() + kSeconds * 1'000'000);
      pb::MachineSample& machine = *sample.mutable_machine();
      machine.set_cpu_ms(machine.cpu_ms() + kSeconds * 1500 * per_node_);
      machine.set_network_sent_bytes(machine.network_sent_bytes() + (kSeconds << 30));
      machine.set_disk_read_bytes(machine.disk_read_bytes() + (kSeconds << 20));
      for (pb::RankSample& rank : *sample.mutable_ranks()) {
        rank.set_cpu_ms(rank.cpu_ms() + kSeconds * 1500);
        rank.set_peer_sent_bytes(rank.peer_sent_bytes() + (kSeconds << 27));
        rank.set_disk_read_bytes(rank.disk_read_bytes() + (kSeconds << 18));
      }
      pb::NodeEvent event;
      *event.mutable_sample() = sample;
      model_.OnEvent(node, event, now_);
    }
  }

 private:
  static std::vector<std::string> Names(uint32_t nodes) {
    std::vector<std::string> names;
    for (uint32_t node = 0; node < nodes; ++node) names.push_back("node" + std::to_string(node));
    return names;
  }

  pb::NodeSample FirstSample(uint32_t node, bool with_gpus) const {
    pb::NodeSample sample;
    sample.set_attempt(1);
    sample.set_clock_us(1'000'000);
    sample.mutable_machine()->set_cores(64);
    sample.mutable_machine()->set_memory_bytes(uint64_t{512} << 30);
    sample.mutable_machine()->set_memory_used_bytes(uint64_t{61} << 30);
    for (uint32_t i = 0; i < per_node_; ++i) {
      pb::RankSample& rank = *sample.add_ranks();
      rank.set_rank(node * per_node_ + i);
      rank.set_local_rank(i);
      rank.set_running(true);
      rank.set_readable(true);
      rank.set_memory_bytes(uint64_t{7} << 30);
      rank.set_step(1204);
      rank.set_step_age_us(200'000);
      rank.set_median_step_us(512'000);
      rank.set_median_compute_us(450'000);
      rank.set_stdout_bytes(100);
      rank.set_last_line("epoch 3 of rank " + std::to_string(rank.rank()));
      if (!with_gpus) continue;
      rank.add_devices(i);
      pb::DeviceSample& device = *sample.add_devices();
      device.set_index(i);
      device.set_uuid("GPU-" + std::to_string(rank.rank()));
      device.set_power_w(412.3);
      device.set_temperature_c(61);
      device.set_memory_bytes(uint64_t{80} << 30);
      device.set_memory_used_bytes(uint64_t{61} << 30);
    }
    return sample;
  }

  const uint32_t nodes_;
  const uint32_t per_node_;
  Clock::time_point now_{std::chrono::seconds(100'000)};
  JobModel model_;
  std::vector<pb::NodeSample> samples_;
};

}  // namespace dslaunch
