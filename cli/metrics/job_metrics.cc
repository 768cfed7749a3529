#include "cli/metrics/job_metrics.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "proto/contract/goodput.h"

namespace dslaunch {
namespace {

constexpr auto kGauge = MetricsWriter::Type::kGauge;
constexpr auto kCounter = MetricsWriter::Type::kCounter;
constexpr double kUsPerSecond = 1e6;
constexpr double kMsPerSecond = 1e3;

double Seconds(uint64_t us) { return static_cast<double>(us) / kUsPerSecond; }
double SecondsOfMs(uint64_t ms) { return static_cast<double>(ms) / kMsPerSecond; }

std::optional<double> Positive(double value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

}  // namespace

struct JobMetrics::RankView {
  std::string labels;
  const pb::RankSample* sample = nullptr;    // newest sample; nullptr if the rank has no sample
  const pb::RankGoodput* goodput = nullptr;  // newest goodput; nullptr if the rank has no goodput
  const StatusLine* step = nullptr;  // newest step; nullptr if the rank has reported no step
  uint64_t goodput_age_us = 0;
};

JobMetrics::JobMetrics(std::string job_id, std::vector<std::string> node_names,
                       int64_t started_unix_ms)
    : job_id_(std::move(job_id)),
      started_unix_s_(static_cast<double>(started_unix_ms) / kMsPerSecond) {
  for (std::string& name : node_names) nodes_.emplace_back().name = std::move(name);
}

void JobMetrics::OnEvent(size_t index, const pb::NodeEvent& event, Clock::time_point now) {
  Node& node = nodes_[index];
  if (!event.has_done()) node.is_up = true;
  switch (event.event_case()) {
    case pb::NodeEvent::kStarted: {
      const pb::Started& started = event.started();
      attempt_ = std::max(attempt_, started.attempt());
      restarts_ = std::max<uint64_t>(restarts_, started.restart_count());
      world_size_ = started.world_size();
      node.first_rank = started.first_rank();
      node.ranks = static_cast<uint32_t>(started.pids_size());
      node.steps.clear();
      node.goodput = started.goodput();
      node.goodput_at = now;
      return;
    }
    case pb::NodeEvent::kRestarting:
      node.ranks = 0;
      return;
    case pb::NodeEvent::kStatus:
      return OnStep(node, event.status().rank(), event.status().line());
    case pb::NodeEvent::kSample:
      node.sample = event.sample();
      return;
    case pb::NodeEvent::kGoodput:
      node.goodput = event.goodput();
      node.goodput_at = now;
      return;
    case pb::NodeEvent::kDone:
      node.is_up = false;
      node.ranks = 0;
      node.sample.reset();
      node.goodput = event.done().goodput();
      node.goodput_at = now;
      return;
    default:
      return;
  }
}

bool JobMetrics::HasSample(size_t index) const {
  const std::optional<pb::NodeSample>& sample = nodes_[index].sample;
  if (!sample) return false;
  const bool uses_gpus = std::ranges::any_of(
      sample->ranks(), [](const pb::RankSample& rank) { return rank.devices_size() > 0; });
  return !uses_gpus || sample->devices_size() > 0 || !sample->device_trouble().empty();
}

void JobMetrics::OnStep(Node& node, uint32_t rank, const std::string& line) {
  std::optional<StatusLine> step = StatusLine::Parse(line);
  if (step && step->event == StatusLine::Event::kStep && rank - node.first_rank < node.ranks)
    node.steps.insert_or_assign(rank, *std::move(step));
}

std::vector<JobMetrics::RankView> JobMetrics::Ranks(Clock::time_point now) const {
  std::vector<RankView> views;
  for (const Node& node : nodes_) {
    std::map<uint32_t, const pb::RankSample*> samples;
    std::map<uint32_t, std::string> uuids;
    if (node.sample) {
      for (const pb::DeviceSample& device : node.sample->devices())
        uuids[device.index()] = device.uuid();
      for (const pb::RankSample& rank : node.sample->ranks()) samples[rank.rank()] = &rank;
    }
    for (uint32_t i = 0; i < node.ranks; ++i) {
      const uint32_t rank = node.first_rank + i;
      RankView& view = views.emplace_back();
      std::string devices;
      if (const auto sample = samples.find(rank); sample != samples.end()) {
        view.sample = sample->second;
        for (const uint32_t device : sample->second->devices())
          devices += (devices.empty() ? "" : ",") + uuids[device];
      }
      view.labels = LabelsText({{"job", job_id_},
                                {"node", node.name},
                                {"rank", std::to_string(rank)},
                                {"local_rank", std::to_string(i)},
                                {"gpu_uuid", devices}});
      if (static_cast<int>(i) < node.goodput.ranks_size())
        view.goodput = &node.goodput.ranks(static_cast<int>(i));
      view.goodput_age_us = static_cast<uint64_t>(
          std::chrono::duration_cast<std::chrono::microseconds>(now - node.goodput_at).count());
      if (const auto step = node.steps.find(rank); step != node.steps.end())
        view.step = &step->second;
    }
  }
  return views;
}

namespace {

// A metric of a rank, computed from its sample or from its newest step.
struct SampleMetric {
  MetricsWriter::Family family;
  std::optional<double> (*value)(const pb::RankSample&);
  bool needs_readable;
};
struct StepMetric {
  MetricsWriter::Family family;
  std::optional<double> (*value)(const StatusLine&);
};
struct MachineMetric {
  MetricsWriter::Family family;
  double (*value)(const pb::MachineSample&);
};
struct DeviceMetric {
  MetricsWriter::Family family;
  std::optional<double> (*value)(const pb::DeviceSample&);
};

constexpr SampleMetric kSampleMetrics[] = {
    {{"dslaunch_rank_running", kGauge, "", "Whether the process of the rank runs."},
     [](const pb::RankSample& rank) -> std::optional<double> { return rank.running() ? 1 : 0; },
     false},
    {{"dslaunch_rank_step_age_seconds", kGauge, "seconds",
      "Time since the rank reported its newest step."},
     [](const pb::RankSample& rank) -> std::optional<double> {
       return rank.has_step() ? std::optional(Seconds(rank.step_age_us())) : std::nullopt;
     },
     false},
    {{"dslaunch_rank_step_time_seconds", kGauge, "seconds", "Median time of recent steps."},
     [](const pb::RankSample& rank) { return Positive(Seconds(rank.median_step_us())); },
     false},
    {{"dslaunch_rank_compute_time_seconds", kGauge, "seconds",
      "Median time of recent steps that the rank computed, without waiting for others."},
     [](const pb::RankSample& rank) { return Positive(Seconds(rank.median_compute_us())); },
     false},
    {{"dslaunch_rank_cpu_seconds", kCounter, "seconds",
      "CPU time of the rank and its children in this attempt."},
     [](const pb::RankSample& rank) -> std::optional<double> { return SecondsOfMs(rank.cpu_ms()); },
     true},
    {{"dslaunch_rank_memory_bytes", kGauge, "bytes",
      "Resident memory of the rank and its children."},
     [](const pb::RankSample& rank) -> std::optional<double> {
       return static_cast<double>(rank.memory_bytes());
     },
     true},
    {{"dslaunch_rank_peer_sent_bytes", kGauge, "bytes",
      "Bytes sent on the open TCP connections between ranks."},
     [](const pb::RankSample& rank) -> std::optional<double> {
       return static_cast<double>(rank.peer_sent_bytes());
     },
     true},
    {{"dslaunch_rank_peer_received_bytes", kGauge, "bytes",
      "Bytes received on the open TCP connections between ranks."},
     [](const pb::RankSample& rank) -> std::optional<double> {
       return static_cast<double>(rank.peer_received_bytes());
     },
     true},
    {{"dslaunch_rank_disk_read_bytes", kCounter, "bytes", "Bytes that the rank read from storage."},
     [](const pb::RankSample& rank) -> std::optional<double> {
       return static_cast<double>(rank.disk_read_bytes());
     },
     true},
    {{"dslaunch_rank_disk_written_bytes", kCounter, "bytes",
      "Bytes that the rank wrote to storage."},
     [](const pb::RankSample& rank) -> std::optional<double> {
       return static_cast<double>(rank.disk_written_bytes());
     },
     true},
    {{"dslaunch_rank_output_bytes", kCounter, "bytes", "Bytes in the logs of the rank."},
     [](const pb::RankSample& rank) -> std::optional<double> {
       return static_cast<double>(rank.stdout_bytes() + rank.stderr_bytes());
     },
     false},
    {{"dslaunch_rank_exchange_wait_seconds", kGauge, "seconds",
      "How long the rank has waited for the exchange that it reported to wait for; 0: none."},
     [](const pb::RankSample& rank) -> std::optional<double> {
       return rank.exchange().empty() ? 0 : SecondsOfMs(rank.exchange_ms());
     },
     false},
};

constexpr StepMetric kStepMetrics[] = {
    {{"dslaunch_rank_step", kGauge, "", "Optimizer steps that the rank has reported as completed."},
     [](const StatusLine& line) -> std::optional<double> {
       return static_cast<double>(line.step);
     }},
    {{"dslaunch_rank_planned_steps", kGauge, "", "Steps of the whole training."},
     [](const StatusLine& line) { return Positive(static_cast<double>(line.total_steps)); }},
    {{"dslaunch_rank_loss", kGauge, "", "Loss at the newest step."},
     [](const StatusLine& line) { return line.loss; }},
    {{"dslaunch_rank_samples_per_second", kGauge, "",
      "Samples of all ranks together, as this rank reports them."},
     [](const StatusLine& line) { return line.samples_per_s; }},
    {{"dslaunch_rank_tokens_per_second", kGauge, "",
      "Tokens of all ranks together, as this rank reports them."},
     [](const StatusLine& line) { return line.tokens_per_s; }},
};

constexpr MachineMetric kMachineMetrics[] = {
    {{"dslaunch_node_cores", kGauge, "", "Usable cores of the node."},
     [](const pb::MachineSample& node) { return static_cast<double>(node.cores()); }},
    {{"dslaunch_node_cpu_seconds", kCounter, "seconds", "Busy time of all cores since boot."},
     [](const pb::MachineSample& node) { return SecondsOfMs(node.cpu_ms()); }},
    {{"dslaunch_node_memory_bytes", kGauge, "bytes", "Usable memory of the node."},
     [](const pb::MachineSample& node) { return static_cast<double>(node.memory_bytes()); }},
    {{"dslaunch_node_memory_used_bytes", kGauge, "bytes", "Memory of the node in use."},
     [](const pb::MachineSample& node) { return static_cast<double>(node.memory_used_bytes()); }},
    {{"dslaunch_node_network_received_bytes", kCounter, "bytes",
      "Bytes received since boot, without loopback."},
     [](const pb::MachineSample& node) {
       return static_cast<double>(node.network_received_bytes());
     }},
    {{"dslaunch_node_network_sent_bytes", kCounter, "bytes",
      "Bytes sent since boot, without loopback."},
     [](const pb::MachineSample& node) { return static_cast<double>(node.network_sent_bytes()); }},
    {{"dslaunch_node_disk_read_bytes", kCounter, "bytes", "Bytes read from all disks since boot."},
     [](const pb::MachineSample& node) { return static_cast<double>(node.disk_read_bytes()); }},
    {{"dslaunch_node_disk_written_bytes", kCounter, "bytes",
      "Bytes written to all disks since boot."},
     [](const pb::MachineSample& node) { return static_cast<double>(node.disk_written_bytes()); }},
};

constexpr DeviceMetric kDeviceMetrics[] = {
    {{"dslaunch_gpu_power_watts", kGauge, "watts", "Power draw of the GPU."},
     [](const pb::DeviceSample& gpu) -> std::optional<double> {
       return gpu.has_power_w() ? std::optional(gpu.power_w()) : std::nullopt;
     }},
    {{"dslaunch_gpu_power_limit_watts", kGauge, "watts", "Power limit of the GPU."},
     [](const pb::DeviceSample& gpu) -> std::optional<double> {
       return gpu.has_power_limit_w() ? std::optional(gpu.power_limit_w()) : std::nullopt;
     }},
    {{"dslaunch_gpu_temperature_celsius", kGauge, "celsius", "Temperature of the GPU."},
     [](const pb::DeviceSample& gpu) -> std::optional<double> {
       return gpu.has_temperature_c() ? std::optional<double>(gpu.temperature_c()) : std::nullopt;
     }},
    {{"dslaunch_gpu_utilization_ratio", kGauge, "ratio",
      "Share of the time in which a kernel ran; power shows better whether the GPU works."},
     [](const pb::DeviceSample& gpu) -> std::optional<double> {
       return gpu.has_utilization_percent() ? std::optional(gpu.utilization_percent() / 100.0)
                                            : std::nullopt;
     }},
    {{"dslaunch_gpu_memory_bytes", kGauge, "bytes", "Memory of the GPU."},
     [](const pb::DeviceSample& gpu) -> std::optional<double> {
       return gpu.has_memory_bytes() ? std::optional(static_cast<double>(gpu.memory_bytes()))
                                     : std::nullopt;
     }},
    {{"dslaunch_gpu_memory_used_bytes", kGauge, "bytes", "Memory of the GPU in use."},
     [](const pb::DeviceSample& gpu) -> std::optional<double> {
       return gpu.has_memory_used_bytes()
                  ? std::optional(static_cast<double>(gpu.memory_used_bytes()))
                  : std::nullopt;
     }},
    {{"dslaunch_gpu_sm_clock_hertz", kGauge, "hertz", "Clock of the GPU's multiprocessors."},
     [](const pb::DeviceSample& gpu) -> std::optional<double> {
       return gpu.has_sm_clock_mhz() ? std::optional(gpu.sm_clock_mhz() * 1e6) : std::nullopt;
     }},
    {{"dslaunch_gpu_throttle_reasons", kGauge, "",
      "Why the clocks are not higher: bits of nvmlClocksThrottleReasons; 1 is idle."},
     [](const pb::DeviceSample& gpu) -> std::optional<double> {
       return gpu.has_throttle_reasons()
                  ? std::optional(static_cast<double>(gpu.throttle_reasons()))
                  : std::nullopt;
     }},
    {{"dslaunch_gpu_ecc_corrected_errors", kCounter, "",
      "Corrected memory errors since the driver was loaded."},
     [](const pb::DeviceSample& gpu) -> std::optional<double> {
       return gpu.has_ecc_corrected() ? std::optional(static_cast<double>(gpu.ecc_corrected()))
                                      : std::nullopt;
     }},
    {{"dslaunch_gpu_ecc_uncorrected_errors", kCounter, "",
      "Memory errors that could not be corrected since the driver was loaded."},
     [](const pb::DeviceSample& gpu) -> std::optional<double> {
       return gpu.has_ecc_uncorrected() ? std::optional(static_cast<double>(gpu.ecc_uncorrected()))
                                        : std::nullopt;
     }},
};

constexpr MetricsWriter::Family kStartTime = {"dslaunch_job_start_time_seconds", kGauge, "seconds",
                                              "When the job was started, since 1970."};
constexpr MetricsWriter::Family kWorldSize = {"dslaunch_job_ranks", kGauge, "",
                                              "Ranks of the newest attempt."};
constexpr MetricsWriter::Family kAttempt = {"dslaunch_job_attempt", kGauge, "",
                                            "Number of starts of all ranks."};
constexpr MetricsWriter::Family kRestarts = {"dslaunch_job_restarts", kCounter, "",
                                             "Restarts after a failure."};
constexpr MetricsWriter::Family kNodeUp = {"dslaunch_node_up", kGauge, "",
                                           "Whether the job's agent on the node answers."};
constexpr MetricsWriter::Family kGoodputTime = {
    "dslaunch_rank_goodput_seconds", kGauge, "seconds",
    "Time of the rank's slot by what it was used for; corrected in hindsight."};
constexpr MetricsWriter::Family kSavedAge = {
    "dslaunch_rank_checkpoint_age_seconds", kGauge, "seconds",
    "Time since the rank reported its newest saved checkpoint."};
constexpr MetricsWriter::Family kSavedStep = {"dslaunch_rank_checkpoint_step", kGauge, "",
                                              "Step of the newest saved checkpoint."};
constexpr MetricsWriter::Family kCopiedAge = {
    "dslaunch_rank_memory_copy_age_seconds", kGauge, "seconds",
    "Time since the rank reported its newest copy in memory."};
constexpr MetricsWriter::Family kCopiedStep = {"dslaunch_rank_memory_copy_step", kGauge, "",
                                               "Step of the newest copy in memory."};

}  // namespace

// Writes the text of all metrics, family by family, because the samples of a family must be
// adjacent.
class JobMetrics::Renderer {
 public:
  Renderer(const std::vector<const JobMetrics*>& jobs, MetricsFormat format, Clock::time_point now)
      : jobs_(jobs), out_(format) {
    for (const JobMetrics* job : jobs_) {
      for (const Node& node : job->nodes_)
        nodes_.emplace_back(LabelsText({{"job", job->job_id_}, {"node", node.name}}), &node);
      std::ranges::move(job->Ranks(now), std::back_inserter(ranks_));
    }
  }

  std::string Text() {
    AddJobs();
    AddNodes();
    AddSteps();
    AddSamples();
    AddGoodput();
    AddDevices();
    return out_.Finish();
  }

 private:
  template <class Value>
  void OfJobs(const MetricsWriter::Family& family, Value value) {
    out_.Begin(family);
    for (const JobMetrics* job : jobs_)
      out_.Add(LabelsText({{"job", job->job_id_}}), static_cast<double>(value(*job)));
  }

  void AddJobs() {
    OfJobs(kStartTime, [](const JobMetrics& job) { return job.started_unix_s_; });
    OfJobs(kWorldSize, [](const JobMetrics& job) { return job.world_size_; });
    OfJobs(kAttempt, [](const JobMetrics& job) { return job.attempt_; });
    OfJobs(kRestarts, [](const JobMetrics& job) { return job.restarts_; });
  }

  void AddNodes() {
    out_.Begin(kNodeUp);
    for (const auto& [labels, node] : nodes_) out_.Add(labels, node->is_up ? 1 : 0);
    for (const MachineMetric& metric : kMachineMetrics) {
      out_.Begin(metric.family);
      for (const auto& [labels, node] : nodes_) {
        if (node->sample) out_.Add(labels, metric.value(node->sample->machine()));
      }
    }
  }

  void AddSteps() {
    for (const StepMetric& metric : kStepMetrics) {
      out_.Begin(metric.family);
      for (const RankView& rank : ranks_) {
        if (rank.step == nullptr) continue;
        if (const auto value = metric.value(*rank.step)) out_.Add(rank.labels, *value);
      }
    }
  }

  void AddSamples() {
    for (const SampleMetric& metric : kSampleMetrics) {
      out_.Begin(metric.family);
      for (const RankView& rank : ranks_) {
        if (rank.sample == nullptr || (metric.needs_readable && !rank.sample->readable())) continue;
        if (const auto value = metric.value(*rank.sample)) out_.Add(rank.labels, *value);
      }
    }
  }

  void AddGoodput() {
    out_.Begin(kGoodputTime);
    for (const RankView& rank : ranks_) {
      if (rank.goodput == nullptr) continue;
      const auto size = std::min(kGoodputBuckets, static_cast<size_t>(rank.goodput->us_size()));
      for (size_t i = 0; i < size; ++i) {
        out_.Add(rank.labels, std::string("bucket=\"") + kGoodputNames[i] + '"',
                 Seconds(rank.goodput->us(static_cast<int>(i))));
      }
    }
    OfStored(kSavedAge, &pb::RankGoodput::has_saved_age_us, [](const RankView& rank) {
      return Seconds(rank.goodput->saved_age_us() + rank.goodput_age_us);
    });
    OfStored(kSavedStep, &pb::RankGoodput::has_saved_age_us,
             [](const RankView& rank) { return static_cast<double>(rank.goodput->saved_step()); });
    OfStored(kCopiedAge, &pb::RankGoodput::has_copied_age_us, [](const RankView& rank) {
      return Seconds(rank.goodput->copied_age_us() + rank.goodput_age_us);
    });
    OfStored(kCopiedStep, &pb::RankGoodput::has_copied_age_us,
             [](const RankView& rank) { return static_cast<double>(rank.goodput->copied_step()); });
  }

  // Adds a sample for each rank for which `has` reports a stored state.
  template <class Value>
  void OfStored(const MetricsWriter::Family& family, bool (pb::RankGoodput::*has)() const,
                Value value) {
    out_.Begin(family);
    for (const RankView& rank : ranks_) {
      if (rank.goodput != nullptr && (rank.goodput->*has)()) out_.Add(rank.labels, value(rank));
    }
  }

  void AddDevices() {
    std::vector<std::pair<std::string, const pb::DeviceSample*>> devices;
    for (const JobMetrics* job : jobs_) {
      for (const Node& node : job->nodes_) {
        if (!node.sample) continue;
        const std::map<uint32_t, const pb::RankSample*> users = UsersOf(*node.sample);
        for (const pb::DeviceSample& device : node.sample->devices()) {
          const auto user = users.find(device.index());
          const pb::RankSample* const rank = user == users.end() ? nullptr : user->second;
          devices.emplace_back(
              LabelsText({{"job", job->job_id_},
                          {"node", node.name},
                          {"rank", rank ? std::to_string(rank->rank()) : ""},
                          {"local_rank", rank ? std::to_string(rank->local_rank()) : ""},
                          {"gpu", std::to_string(device.index())},
                          {"gpu_uuid", device.uuid()},
                          {"gpu_name", device.name()}}),
              &device);
        }
      }
    }
    for (const DeviceMetric& metric : kDeviceMetrics) {
      out_.Begin(metric.family);
      for (const auto& [labels, device] : devices) {
        if (const auto value = metric.value(*device)) out_.Add(labels, *value);
      }
    }
  }

  // Returns the rank that uses each GPU, by device; nullptr if several ranks do.
  static std::map<uint32_t, const pb::RankSample*> UsersOf(const pb::NodeSample& sample) {
    std::map<uint32_t, const pb::RankSample*> users;
    for (const pb::RankSample& rank : sample.ranks()) {
      for (const uint32_t device : rank.devices()) {
        const auto [user, is_first] = users.try_emplace(device, &rank);
        if (!is_first) user->second = nullptr;
      }
    }
    return users;
  }

  const std::vector<const JobMetrics*>& jobs_;
  MetricsWriter out_;
  std::vector<std::pair<std::string, const Node*>> nodes_;
  std::vector<RankView> ranks_;
};

std::string MetricsText(const std::vector<const JobMetrics*>& jobs, MetricsFormat format,
                        Clock::time_point now) {
  return JobMetrics::Renderer(jobs, format, now).Text();
}

}  // namespace dslaunch
