// The state of a running job by the events of its nodes. Pure: the caller passes the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/contract/status_line.h"

namespace dslaunch {

// Use per second between two samples; nullopt before the second one.
struct UseRates {
  std::optional<double> cpu;  // 1: one core
  std::optional<double> network_bytes;
  std::optional<double> disk_bytes;
};

struct ModelRank {
  uint32_t rank = 0;
  size_t node = 0;
  pb::RankSample sample;  // texts are sanitized; unset before the node's first sample
  UseRates rates;
  bool has_sample = false;
  bool ended = false;
  std::string end;  // "exit code 1", "SIGKILL"; empty while it runs
  bool failed = false;
  Clock::time_point printed_at;  // when a sample last showed new output
  std::optional<uint64_t> step;  // newest of its samples and status lines
  std::optional<Clock::time_point> step_at;
};

struct ModelNode {
  enum class State { kConnecting, kConnected, kLost, kDone };
  std::string name;
  State state = State::kConnecting;
  std::string trouble;  // why it is lost; else why its GPUs are not known; often empty
  std::optional<pb::NodeSample> sample;
  uint32_t samples = 0;  // number of samples so far
  UseRates rates;

  // Returns the state of a device; null if it is not known.
  const pb::DeviceSample* Device(uint32_t index) const;
};

// Progress of the whole job by the ranks' status lines.
struct ModelProgress {
  std::optional<uint64_t> step;  // the most that a rank has reported
  uint64_t total_steps = 0;      // 0: unknown
  std::optional<double> loss;
  std::optional<double> samples_per_s;
  std::optional<double> tokens_per_s;
};

class JobModel {
 public:
  static constexpr size_t kMostRanks = 1 << 20;

  explicit JobModel(const std::vector<std::string>& nodes);

  // Takes an event of a node. Ignores earlier attempts, and ranks beyond kMostRanks.
  void OnEvent(size_t node, const pb::NodeEvent& event, Clock::time_point now);
  // A connection to the node was made, or is lost, for which `why` is a sentence.
  void OnReached(size_t node);
  void OnLost(size_t node, const std::string& why);

  const std::vector<ModelNode>& nodes() const { return nodes_; }
  // By rank, without ranks of which nothing is known yet.
  const std::map<uint32_t, ModelRank>& ranks() const { return ranks_; }
  const ModelProgress& progress() const { return progress_; }
  uint64_t attempt() const { return attempt_; }
  uint32_t restarts() const { return restarts_; }
  uint32_t world_size() const { return world_size_; }
  bool running() const { return running_; }
  // "starting", "running", "restarting" or "ending".
  std::string StateText() const;
  // The newest notice of a node that still matters; empty if there is none. Sanitized.
  const std::string& notice() const { return notice_; }
  // Returns how many nodes have sent `samples` samples, or are lost, or have ended.
  size_t KnownNodes(uint32_t samples) const;

 private:
  void OnSample(size_t node, const pb::NodeSample& sample, Clock::time_point now);
  void OnStatus(size_t node, const pb::WorkerStatus& status, Clock::time_point now);
  void OnStarted(size_t node, const pb::Started& started);
  void OnEnded(const pb::WorkerEnded& ended);
  // Begins a later attempt, whose ranks may be other ones.
  void BeginAttempt(uint64_t attempt);
  ModelRank* Rank(uint32_t rank, size_t node);

  std::vector<ModelNode> nodes_;
  std::map<uint32_t, ModelRank> ranks_;
  ModelProgress progress_;
  uint64_t attempt_ = 0;
  uint32_t restarts_ = 0;
  uint32_t world_size_ = 0;
  bool running_ = false;
  bool restarting_ = false;
  bool ending_ = false;
  std::string notice_;
};

}  // namespace dslaunch
