#include "trainer/train/user_metrics.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "dslaunch/plugin.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/numbers.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/config/json/json_object.h"

namespace dslaunch {
namespace {

constexpr size_t kMostSums = size_t{1} << 20;  // limit on the number of sums of one metric

void AddSums(const PluginPart& part, const Metric& metric, const at::Tensor& output,
             const at::Tensor& targets, std::vector<double>& sums) {
  std::vector<double> more;
  CallPlugin(part, "fails", [&] { more = metric.Sums(output, targets); });
  if (more.empty() || more.size() > kMostSums)
    FailPlugin(part, "gives " + std::to_string(more.size()) + " sums; it must give at least one");
  if (sums.empty()) sums.resize(more.size());
  if (sums.size() != more.size()) {
    FailPlugin(part, "gives " + std::to_string(more.size()) + " sums, at first " +
                         std::to_string(sums.size()) + "; it must always be as many");
  }
  std::ranges::transform(sums, more, sums.begin(), std::plus());
}

}  // namespace

UserMetrics::UserMetrics(const std::vector<MetricConfig>& configs) {
  for (const MetricConfig& config : configs) {
    const PluginPart part = {config.plugin, "run.metrics_plugin", "metric", config.name};
    const auto& symbol = *static_cast<const MetricSymbol*>(FindPluginPart(part));
    const std::string section = "run.metrics_params." + config.name;
    const MetricInput input{config.name, config.params, NumbersOf(config.params, section)};
    std::shared_ptr<Metric> metric;
    CallPlugin(part, "cannot be made", [&] { metric = symbol.make(input); });
    if (metric == nullptr) FailPlugin(part, "cannot be made: its function returns null");
    metrics_.push_back({part, std::move(metric)});
  }
}

void UserMetrics::Evaluation::Add(const at::Tensor& output, const at::Tensor& targets) {
  if (!failure_.empty()) return;
  failure_ = FailureOf([&] {
    for (size_t i = 0; i < sums_.size(); ++i) {
      const Loaded& loaded = metrics_.metrics_[i];
      AddSums(loaded.part, *loaded.metric, output, targets, sums_[i]);
    }
  });
}

EvaluationResults UserMetrics::Evaluation::Results(const ProcessGroup& group) const {
  EvaluationResults results;
  if (sums_.empty()) return results;
  ThrowFirstFailure(GatherTexts(group, failure_));
  std::vector<double> counts;  // number of sums of each metric; 0 on ranks that added no batch
  for (const std::vector<double>& sums : sums_) counts.push_back(static_cast<double>(sums.size()));
  const std::vector<std::vector<double>> of_ranks = GatherNumbers(group, counts);
  for (size_t i = 0; i < sums_.size(); ++i) {
    const auto& [part, metric] = metrics_.metrics_[i];
    size_t most = 0;
    for (const auto& rank : of_ranks) most = std::max(most, static_cast<size_t>(rank[i]));
    for (const auto& rank : of_ranks) {
      if (rank[i] != 0 && static_cast<size_t>(rank[i]) != most) {
        FailPlugin(part, "gives " + std::to_string(static_cast<int64_t>(rank[i])) +
                             " sums on one rank and " + std::to_string(most) + " on another");
      }
    }
    std::vector<double> own = sums_[i];
    own.resize(most);
    std::vector<double> all(most);
    for (const std::vector<double>& rank : GatherNumbers(group, own))
      std::ranges::transform(all, rank, all.begin(), std::plus());
    double value = 0;
    CallPlugin(part, "fails", [&, &made = metric] { value = made->Value(all); });
    results.emplace_back(part.name, value);
  }
  return results;
}

}  // namespace dslaunch
