// Models the state of a running job from the events of its nodes. The caller passes the time.
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

// The use of resources per second between two samples; nullopt before the second sample.
struct UseRates {
  std::optional<double> cpu;  // number of cores in use
  std::optional<double> network_bytes;
  std::optional<double> disk_bytes;
};

struct ModelRank {
  uint32_t rank = 0;
  size_t node = 0;
  pb::RankSample sample;  // newest sample, sanitized; unset before the node's first sample
  UseRates rates;
  bool has_sample = false;
  bool ended = false;
  std::string end;  // end of the rank, such as "exit code 1" or "SIGKILL"; empty while it runs
  bool failed = false;
  Clock::time_point printed_at;  // time at which a sample last showed new output
  std::optional<uint64_t> step;  // newest step in the rank's samples and status lines
  std::optional<Clock::time_point> step_at;
};

struct ModelNode {
  enum class State { kConnecting, kConnected, kLost, kDone };
  std::string name;
  State state = State::kConnecting;
  std::string trouble;  // reason why the node is lost, or why its GPUs are unknown; often empty
  std::optional<pb::NodeSample> sample;
  uint32_t samples = 0;  // number of samples received so far
  UseRates rates;

  // Returns the newest sample of a device; null if it is not known.
  const pb::DeviceSample* Device(uint32_t index) const;
};

// The progress of the whole job according to the status lines of its ranks.
struct ModelProgress {
  std::optional<uint64_t> step;  // highest step that any rank has reported
  uint64_t total_steps = 0;      // planned number of steps; 0 if unknown
  std::optional<double> loss;
  std::optional<double> samples_per_s;
  std::optional<double> tokens_per_s;
};

class JobModel {
 public:
  static constexpr size_t kMostRanks = 1 << 20;

  explicit JobModel(const std::vector<std::string>& nodes);

  // Handles an event of a node. Ignores earlier attempts, and ranks beyond kMostRanks.
  void OnEvent(size_t node, const pb::NodeEvent& event, Clock::time_point now);

  // Records that a connection to the node was made.
  void OnReached(size_t node);

  // Records that the node is lost; `why` is a sentence with the reason.
  void OnLost(size_t node, const std::string& why);

  const std::vector<ModelNode>& nodes() const { return nodes_; }
  // Returns the ranks by number, without ranks about which no facts are known yet.
  const std::map<uint32_t, ModelRank>& ranks() const { return ranks_; }
  const ModelProgress& progress() const { return progress_; }
  uint64_t attempt() const { return attempt_; }
  uint32_t restarts() const { return restarts_; }
  uint32_t world_size() const { return world_size_; }
  bool running() const { return running_; }
  // Returns the state as a word: "starting", "running", "restarting" or "ending".
  std::string StateText() const;
  // Returns the newest notice of a node that still matters; empty if there is none. Sanitized.
  const std::string& notice() const { return notice_; }
  // Returns the number of nodes that have sent `samples` samples, are lost, or have ended.
  size_t KnownNodes(uint32_t samples) const;

 private:
  void OnSample(size_t node, const pb::NodeSample& sample, Clock::time_point now);
  void OnStatus(size_t node, const pb::WorkerStatus& status, Clock::time_point now);
  void OnStarted(size_t node, const pb::Started& started);
  void OnEnded(const pb::WorkerEnded& ended);
  // Begins a later attempt, whose ranks may be on different nodes.
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
