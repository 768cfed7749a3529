#include "cli/top/outliers.h"

#include <algorithm>
#include <chrono>

#include "cli/top/text_format.h"

namespace dslaunch {
namespace {

constexpr double kMicroseconds = 1e6;
constexpr double kLeastStall_s = 10;
constexpr double kStallSteps = 5;
constexpr double kLag_s = 3;
constexpr double kLeastStep_s = 1e-4;
constexpr double kLowPower = 0.6;
constexpr double kSlowWork = 1.25;
constexpr double kLeastExtraWork_s = 0.01;
constexpr size_t kFewestForComparison = 3;
constexpr double kFullMemory = 0.95;

// An nvmlClocksThrottleReason that means that a GPU is slower than possible, with its cause.
struct ThrottleReason {
  uint64_t bit;
  const char* text;
};
constexpr ThrottleReason kThrottleReasons[] = {
    {0x40, "too hot"}, {0x20, "too hot"}, {0x80, "power brake"}, {0x8, "hardware slowdown"}};

const char* ThrottleText(uint64_t reasons) {
  for (const ThrottleReason& reason : kThrottleReasons) {
    if ((reasons & reason.bit) != 0) return reason.text;
  }
  return nullptr;
}

// Medians over the ranks of the whole job.
struct Medians {
  std::optional<double> step;
  std::optional<double> step_s;
  std::optional<double> power_w;
  std::optional<double> work_s;
};

std::optional<double> WorkOf(const ModelRank& rank) {
  if (rank.sample.median_compute_us() == 0) return std::nullopt;
  return static_cast<double>(rank.sample.median_compute_us()) / kMicroseconds;
}

class Collected {
 public:
  void Add(std::optional<double> value) {
    if (value) values_.push_back(*value);
  }
  // Returns the median; nullopt if there are fewer values than a comparison needs.
  std::optional<double> Median(size_t fewest = kFewestForComparison) const {
    return values_.size() < fewest ? std::nullopt : MedianValue(values_);
  }

 private:
  std::vector<double> values_;
};

Medians MediansOf(const JobModel& model) {
  Collected step, step_s, power_w, work_s;
  for (const auto& [number, rank] : model.ranks()) {
    if (rank.ended) continue;
    const RankFigures figures = FiguresOf(model, rank);
    step.Add(figures.step);
    step_s.Add(figures.step_s);
    power_w.Add(figures.power_w);
    work_s.Add(WorkOf(rank));
  }
  return {step.Median(), step_s.Median(1), power_w.Median(), work_s.Median()};
}

std::string DeviceTrouble(const ModelNode& node, const ModelRank& rank) {
  for (const uint32_t index : rank.sample.devices()) {
    const pb::DeviceSample* const device = node.Device(index);
    if (device == nullptr) continue;
    const std::string name = "GPU " + std::to_string(index);
    if (device->ecc_uncorrected() > 0)
      return name + " has " + std::to_string(device->ecc_uncorrected()) +
             " uncorrected memory errors";
    if (const char* const why = ThrottleText(device->throttle_reasons()))
      return name + " slows down: " + why;
  }
  return "";
}

std::string WhyOf(const JobModel& model, const ModelRank& rank, const Medians& medians,
                  bool stalled) {
  const ModelNode& node = model.nodes()[rank.node];
  if (std::string trouble = DeviceTrouble(node, rank); !trouble.empty()) return trouble;
  const RankFigures figures = FiguresOf(model, rank);
  if (stalled && figures.power_w && medians.power_w &&
      *figures.power_w < kLowPower * *medians.power_w) {
    return "draws " + BriefNumber(*figures.power_w) + " W, median " +
           BriefNumber(*medians.power_w) + " W, while the job stalls";
  }
  // Samples and status lines of different ranks arrive at different times, so some lag is allowed.
  const double apart = 1 + kLag_s / std::max(medians.step_s.value_or(1), kLeastStep_s);
  if (figures.step && medians.step && *figures.step + apart < *medians.step) {
    return "at step " + std::to_string(*rank.step) + ", median " +
           std::to_string(static_cast<uint64_t>(*medians.step));
  }
  const std::optional<double> work_s = WorkOf(rank);
  if (work_s && medians.work_s && *work_s > kSlowWork * *medians.work_s &&
      *work_s > *medians.work_s + kLeastExtraWork_s) {
    return "own work " + BriefNumber(*work_s) + " s a step, median " +
           BriefNumber(*medians.work_s) + " s";
  }
  return "";
}

std::string WhyOf(const ModelNode& node) {
  if (!node.trouble.empty()) return node.trouble;
  if (!node.sample) return "";
  const pb::MachineSample& machine = node.sample->machine();
  const auto total = static_cast<double>(machine.memory_bytes());
  const auto used = static_cast<double>(machine.memory_used_bytes());
  if (total > 0 && used > kFullMemory * total)
    return "uses " + BriefBytes(used) + " of " + BriefBytes(total) + " memory";
  return "";
}

}  // namespace

RankFigures FiguresOf(const JobModel& model, const ModelRank& rank) {
  RankFigures figures;
  if (rank.step) figures.step = static_cast<double>(*rank.step);
  const pb::RankSample& sample = rank.sample;
  if (sample.median_step_us() > 0) {
    figures.step_s = static_cast<double>(sample.median_step_us()) / kMicroseconds;
    if (sample.median_compute_us() > 0) {
      figures.waiting = std::clamp(1 - static_cast<double>(sample.median_compute_us()) /
                                           static_cast<double>(sample.median_step_us()),
                                   0.0, 1.0);
    }
  }
  if (rank.ended || !sample.readable()) return figures;
  figures.cpu = rank.rates.cpu;
  figures.network_bytes = rank.rates.network_bytes;
  figures.disk_bytes = rank.rates.disk_bytes;
  figures.memory_bytes = static_cast<double>(sample.memory_bytes());
  for (const uint32_t index : sample.devices()) {
    const pb::DeviceSample* const device = model.nodes()[rank.node].Device(index);
    if (device == nullptr) continue;
    if (device->has_power_w()) figures.power_w = figures.power_w.value_or(0) + device->power_w();
    if (device->has_memory_used_bytes()) {
      figures.gpu_memory_bytes =
          figures.gpu_memory_bytes.value_or(0) + static_cast<double>(device->memory_used_bytes());
    }
    if (device->has_temperature_c()) {
      figures.temperature_c =
          std::max<double>(figures.temperature_c.value_or(0), device->temperature_c());
    }
  }
  return figures;
}

bool IsStalled(const JobModel& model, Clock::time_point now) {
  std::optional<Clock::time_point> newest;
  Collected step_s;
  for (const auto& [number, rank] : model.ranks()) {
    if (rank.step_at) newest = std::max(newest.value_or(*rank.step_at), *rank.step_at);
    step_s.Add(FiguresOf(model, rank).step_s);
  }
  if (!newest) return false;
  const double still_s = std::chrono::duration<double>(now - *newest).count();
  return still_s > std::max(kLeastStall_s, kStallSteps * step_s.Median(1).value_or(0));
}

std::vector<Outlier> FindOutliers(const JobModel& model, Clock::time_point now) {
  std::vector<Outlier> failed, others;
  for (size_t i = 0; i < model.nodes().size(); ++i) {
    const ModelNode& node = model.nodes()[i];
    if (std::string why = WhyOf(node); !why.empty()) {
      (node.state == ModelNode::State::kLost ? failed : others)
          .push_back({std::nullopt, i, std::move(why)});
    }
  }
  const Medians medians = MediansOf(model);
  const bool stalled = IsStalled(model, now);
  for (const auto& [number, rank] : model.ranks()) {
    if (rank.failed) {
      failed.push_back({number, rank.node, rank.end});
      continue;
    }
    if (rank.ended) continue;
    if (std::string why = WhyOf(model, rank, medians, stalled); !why.empty())
      others.push_back({number, rank.node, std::move(why)});
  }
  failed.insert(failed.end(), others.begin(), others.end());
  return failed;
}

}  // namespace dslaunch
