#include "cli/top/job_model.h"

#include <algorithm>

#include "base/text/sanitize.h"
#include "base/text/signal_name.h"

namespace dslaunch {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr double kMillisecondsPerSecond = 1e3;

// Returns the growth of a counter; 0 if the counter fell, because its subject ended.
double Growth(uint64_t before, uint64_t after) {
  return after > before ? static_cast<double>(after - before) : 0;
}

UseRates RatesOf(const pb::MachineSample& before, const pb::MachineSample& after, double span_s) {
  return {Growth(before.cpu_ms(), after.cpu_ms()) / kMillisecondsPerSecond / span_s,
          (Growth(before.network_received_bytes(), after.network_received_bytes()) +
           Growth(before.network_sent_bytes(), after.network_sent_bytes())) /
              span_s,
          (Growth(before.disk_read_bytes(), after.disk_read_bytes()) +
           Growth(before.disk_written_bytes(), after.disk_written_bytes())) /
              span_s};
}

UseRates RatesOf(const pb::RankSample& before, const pb::RankSample& after, double span_s) {
  if (!before.readable() || !after.readable()) return {};
  return {Growth(before.cpu_ms(), after.cpu_ms()) / kMillisecondsPerSecond / span_s,
          (Growth(before.peer_received_bytes(), after.peer_received_bytes()) +
           Growth(before.peer_sent_bytes(), after.peer_sent_bytes())) /
              span_s,
          (Growth(before.disk_read_bytes(), after.disk_read_bytes()) +
           Growth(before.disk_written_bytes(), after.disk_written_bytes())) /
              span_s};
}

// Sanitizes all texts of the sample, because text from a node must not reach the terminal
// unchanged.
void Sanitize(pb::NodeSample& sample) {
  for (pb::RankSample& rank : *sample.mutable_ranks()) {
    rank.set_last_line(SanitizeForTerminal(rank.last_line()));
    rank.set_exchange(SanitizeForTerminal(rank.exchange()));
  }
  for (pb::DeviceSample& device : *sample.mutable_devices()) {
    device.set_name(SanitizeForTerminal(device.name()));
    device.set_uuid(SanitizeForTerminal(device.uuid()));
  }
  sample.set_device_trouble(SanitizeForTerminal(sample.device_trouble()));
}

std::string EndText(const pb::WorkerEnded& ended) {
  if (ended.out_of_memory()) return "out of memory";
  return ended.signal() != 0 ? SignalName(ended.signal())
                             : "exit code " + std::to_string(ended.exit_code());
}

}  // namespace

const pb::DeviceSample* ModelNode::Device(uint32_t index) const {
  if (!sample) return nullptr;
  const auto found = std::ranges::find_if(
      sample->devices(), [&](const pb::DeviceSample& device) { return device.index() == index; });
  return found == sample->devices().end() ? nullptr : &*found;
}

JobModel::JobModel(const std::vector<std::string>& nodes) {
  for (const std::string& name : nodes) nodes_.emplace_back().name = SanitizeForTerminal(name);
}

void JobModel::OnReached(size_t node) {
  nodes_[node].state = ModelNode::State::kConnected;
  nodes_[node].trouble.clear();
}

void JobModel::OnLost(size_t node, const std::string& why) {
  nodes_[node].state = ModelNode::State::kLost;
  nodes_[node].trouble = SanitizeForTerminal(why);
}

void JobModel::OnEvent(size_t node, const pb::NodeEvent& event, Clock::time_point now) {
  switch (event.event_case()) {
    case pb::NodeEvent::kStarted:
      return OnStarted(node, event.started());
    case pb::NodeEvent::kRunning:
      running_ = running_ || event.running().attempt() == attempt_;
      return;
    case pb::NodeEvent::kRestarting:
      running_ = false;
      restarting_ = true;
      notice_ = SanitizeForTerminal(event.restarting().reason());
      return;
    case pb::NodeEvent::kOutcome:
      ending_ = true;
      return;
    case pb::NodeEvent::kNotice:
      notice_ = event.notice().standstill() == pb::Notice::OVER
                    ? ""
                    : SanitizeForTerminal(event.notice().message());
      return;
    case pb::NodeEvent::kWorkerEnded:
      return OnEnded(event.worker_ended());
    case pb::NodeEvent::kStatus:
      return OnStatus(node, event.status(), now);
    case pb::NodeEvent::kSample:
      return OnSample(node, event.sample(), now);
    case pb::NodeEvent::kDone:
      nodes_[node].state = ModelNode::State::kDone;
      return;
    default:
      return;
  }
}

void JobModel::BeginAttempt(uint64_t attempt) {
  attempt_ = attempt;
  running_ = false;
  restarting_ = false;
  ranks_.clear();
  progress_ = {};
}

ModelRank* JobModel::Rank(uint32_t rank, size_t node) {
  const auto found = ranks_.find(rank);
  if (found != ranks_.end()) {
    found->second.node = node;
    return &found->second;
  }
  if (ranks_.size() >= kMostRanks) return nullptr;
  ModelRank& made = ranks_[rank];
  made.rank = rank;
  made.node = node;
  return &made;
}

void JobModel::OnStarted(size_t node, const pb::Started& started) {
  if (started.attempt() < attempt_) return;
  if (started.attempt() > attempt_) BeginAttempt(started.attempt());
  world_size_ = started.world_size();
  restarts_ = started.restart_count();
  for (int i = 0; i < started.pids_size(); ++i)
    Rank(started.first_rank() + static_cast<uint32_t>(i), node);
}

void JobModel::OnEnded(const pb::WorkerEnded& ended) {
  if (ended.attempt() != attempt_) return;
  const auto found = ranks_.find(ended.rank());
  if (found == ranks_.end()) return;
  ModelRank& rank = found->second;
  rank.ended = true;
  rank.end = EndText(ended);
  rank.failed = !ended.stopping() && (ended.signal() != 0 || ended.exit_code() != 0);
}

void JobModel::OnStatus(size_t node, const pb::WorkerStatus& status, Clock::time_point now) {
  const std::optional<StatusLine> line = StatusLine::Parse(status.line());
  if (!line || line->event != StatusLine::Event::kStep) return;
  ModelRank* const rank = Rank(status.rank(), node);
  if (rank == nullptr) return;
  const auto step = static_cast<uint64_t>(line->step);
  if (rank->step != step) rank->step_at = now;
  rank->step = step;
  progress_.step = std::max(progress_.step.value_or(0), step);
  if (line->total_steps > 0) progress_.total_steps = static_cast<uint64_t>(line->total_steps);
  if (line->loss) progress_.loss = line->loss;
  if (line->samples_per_s) progress_.samples_per_s = line->samples_per_s;
  if (line->tokens_per_s) progress_.tokens_per_s = line->tokens_per_s;
}

void JobModel::OnSample(size_t node, const pb::NodeSample& sent, Clock::time_point now) {
  ModelNode& known = nodes_[node];
  pb::NodeSample sample = sent;
  Sanitize(sample);
  known.trouble = sample.device_trouble();
  const bool has_span = known.sample && sample.clock_us() > known.sample->clock_us();
  const double span_s = has_span
                            ? static_cast<double>(sample.clock_us() - known.sample->clock_us()) /
                                  kMicrosecondsPerSecond
                            : 0;
  if (has_span) known.rates = RatesOf(known.sample->machine(), sample.machine(), span_s);
  if (sample.attempt() == attempt_) {
    const bool same_attempt = known.sample && known.sample->attempt() == sample.attempt();
    for (const pb::RankSample& now_sample : sample.ranks()) {
      ModelRank* const rank = Rank(now_sample.rank(), node);
      if (rank == nullptr) continue;
      if (rank->has_sample && same_attempt && has_span)
        rank->rates = RatesOf(rank->sample, now_sample, span_s);
      const bool printed = rank->sample.stdout_bytes() != now_sample.stdout_bytes() ||
                           rank->sample.stderr_bytes() != now_sample.stderr_bytes();
      if (printed) rank->printed_at = now;
      rank->sample = now_sample;
      rank->has_sample = true;
      if (!now_sample.has_step()) continue;
      rank->step = now_sample.step();
      rank->step_at = now - std::chrono::microseconds(
                                std::min<uint64_t>(now_sample.step_age_us(), uint64_t{1} << 50));
      progress_.step = std::max(progress_.step.value_or(0), now_sample.step());
    }
  }
  known.sample = std::move(sample);
  ++known.samples;
}

std::string JobModel::StateText() const {
  if (ending_ || (!nodes_.empty() && std::ranges::all_of(nodes_, [](const ModelNode& node) {
        return node.state == ModelNode::State::kDone;
      })))
    return "ending";
  return running_ ? "running" : restarting_ || attempt_ > 1 ? "restarting" : "starting";
}

size_t JobModel::KnownNodes(uint32_t samples) const {
  return static_cast<size_t>(std::ranges::count_if(nodes_, [&](const ModelNode& node) {
    return node.samples >= samples || node.state == ModelNode::State::kLost ||
           node.state == ModelNode::State::kDone;
  }));
}

}  // namespace dslaunch
