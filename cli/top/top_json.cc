#include "cli/top/top_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/top/outliers.h"

namespace dslaunch {
namespace {

using nlohmann::ordered_json;

constexpr double kMilliseconds = 1e3;

template <class T>
ordered_json OrNull(const std::optional<T>& value) {
  if (!value) return ordered_json();
  if constexpr (std::is_floating_point_v<T>)
    return std::isfinite(*value) ? ordered_json(*value) : ordered_json();
  else
    return ordered_json(*value);
}

ordered_json TextOrNull(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

ordered_json DeviceJson(const pb::DeviceSample& device) {
  ordered_json json = {{"index", device.index()}, {"uuid", device.uuid()}, {"name", device.name()}};
  const auto put = [&](const char* name, bool has, auto value) {
    json[name] = has ? ordered_json(value) : ordered_json();
  };
  put("power_w", device.has_power_w(), device.power_w());
  put("power_limit_w", device.has_power_limit_w(), device.power_limit_w());
  put("temperature_c", device.has_temperature_c(), device.temperature_c());
  put("utilization_percent", device.has_utilization_percent(), device.utilization_percent());
  put("memory_bytes", device.has_memory_bytes(), device.memory_bytes());
  put("memory_used_bytes", device.has_memory_used_bytes(), device.memory_used_bytes());
  put("sm_clock_mhz", device.has_sm_clock_mhz(), device.sm_clock_mhz());
  put("throttle_reasons", device.has_throttle_reasons(), device.throttle_reasons());
  put("ecc_corrected", device.has_ecc_corrected(), device.ecc_corrected());
  put("ecc_uncorrected", device.has_ecc_uncorrected(), device.ecc_uncorrected());
  json["age_s"] = static_cast<double>(device.age_ms()) / kMilliseconds;
  return json;
}

ordered_json RankJson(const JobModel& model, const ModelRank& rank) {
  const RankFigures figures = FiguresOf(model, rank);
  return {{"rank", rank.rank},
          {"local_rank", rank.has_sample ? ordered_json(rank.sample.local_rank()) : ordered_json()},
          {"end", TextOrNull(rank.end)},
          {"step", OrNull(rank.step)},
          {"step_s", OrNull(figures.step_s)},
          {"waiting_share", OrNull(figures.waiting)},
          {"exchange", TextOrNull(rank.sample.exchange())},
          {"cpu_cores", OrNull(figures.cpu)},
          {"memory_bytes", OrNull(figures.memory_bytes)},
          {"network_bytes_per_s", OrNull(figures.network_bytes)},
          {"disk_bytes_per_s", OrNull(figures.disk_bytes)},
          {"gpus", rank.sample.devices()},
          {"last_line", TextOrNull(rank.sample.last_line())}};
}

const char* StateName(ModelNode::State state) {
  switch (state) {
    case ModelNode::State::kConnecting:
      return "connecting";
    case ModelNode::State::kConnected:
      return "connected";
    case ModelNode::State::kLost:
      return "lost";
    case ModelNode::State::kDone:
      break;
  }
  return "ended";
}

ordered_json NodeJson(const JobModel& model, size_t index) {
  const ModelNode& node = model.nodes()[index];
  const bool sampled = node.sample.has_value();
  const pb::MachineSample machine = sampled ? node.sample->machine() : pb::MachineSample();
  const auto known = [&](auto value) { return sampled ? ordered_json(value) : ordered_json(); };
  ordered_json ranks = ordered_json::array(), gpus = ordered_json::array();
  for (const auto& [number, rank] : model.ranks()) {
    if (rank.node == index) ranks.push_back(RankJson(model, rank));
  }
  if (sampled) {
    for (const pb::DeviceSample& device : node.sample->devices())
      gpus.push_back(DeviceJson(device));
  }
  return {{"name", node.name},
          {"state", StateName(node.state)},
          {"trouble", TextOrNull(node.trouble)},
          {"cores", known(machine.cores())},
          {"cpu_cores", OrNull(node.rates.cpu)},
          {"memory_bytes", known(machine.memory_bytes())},
          {"memory_used_bytes", known(machine.memory_used_bytes())},
          {"network_bytes_per_s", OrNull(node.rates.network_bytes)},
          {"disk_bytes_per_s", OrNull(node.rates.disk_bytes)},
          {"gpus", std::move(gpus)},
          {"ranks", std::move(ranks)}};
}

}  // namespace

std::string TopJson(const JobModel& model, const std::string& job_id, Clock::time_point now) {
  const ModelProgress& progress = model.progress();
  ordered_json nodes = ordered_json::array(), outliers = ordered_json::array();
  for (size_t i = 0; i < model.nodes().size(); ++i) nodes.push_back(NodeJson(model, i));
  for (const Outlier& outlier : FindOutliers(model, now)) {
    outliers.push_back({{"rank", OrNull(outlier.rank)},
                        {"node", model.nodes()[outlier.node].name},
                        {"why", outlier.why}});
  }
  const ordered_json json = {
      {"job", job_id},
      {"state", model.StateText()},
      {"attempt", model.attempt()},
      {"restarts", model.restarts()},
      {"world_size", model.world_size()},
      {"stalled", IsStalled(model, now)},
      {"step", OrNull(progress.step)},
      {"total_steps",
       progress.total_steps > 0 ? ordered_json(progress.total_steps) : ordered_json()},
      {"loss", OrNull(progress.loss)},
      {"samples_per_s", OrNull(progress.samples_per_s)},
      {"tokens_per_s", OrNull(progress.tokens_per_s)},
      {"notice", TextOrNull(model.notice())},
      {"outliers", std::move(outliers)},
      {"nodes", std::move(nodes)}};
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace dslaunch
