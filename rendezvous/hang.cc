#include "rendezvous/hang.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/count.h"

namespace dslaunch {
namespace {

using std::chrono::microseconds;

constexpr int kUsualSteps = 5;
constexpr uint64_t kStepsToJudge = 10;
constexpr microseconds kLeastSlow{20'000};  // smaller differences may come from process scheduling

// Returns the lower median of `values`, which must not be empty.
microseconds Median(std::vector<microseconds> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string Millis(microseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", static_cast<double>(duration.count()) / 1000);
  return text;
}

std::string Names(const std::vector<uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

HangDecision FindHang(Clock::time_point now, const std::vector<RankSteps>& ranks,
                      const HangOptions& options) {
  std::vector<const RankSteps*> active;
  for (const RankSteps& rank : ranks) {
    if (!rank.ended) active.push_back(&rank);
  }
  if (active.empty()) return {};
  std::vector<microseconds> usual;
  Clock::time_point last_step = active.front()->step_at;
  uint64_t lowest = active.front()->step;
  uint64_t highest = lowest;
  for (const RankSteps* rank : active) {
    usual.push_back(rank->median_step);
    last_step = std::max(last_step, rank->step_at);
    lowest = std::min(lowest, rank->step);
    highest = std::max(highest, rank->step);
  }
  const Clock::duration patience =
      std::max<Clock::duration>(options.hang, kUsualSteps * Median(usual));
  if (highest == 0 || now - last_step < patience) return {};
  HangDecision decision;
  decision.kind = HangDecision::Kind::kHang;
  for (const RankSteps* rank : active) {
    if (rank->step == lowest) decision.ranks.push_back(rank->rank);
  }
  std::sort(decision.ranks.begin(), decision.ranks.end());
  decision.reason = "no rank made a step for " + WholeSeconds(now - last_step) + ": ";
  if (active.size() == 1) {
    decision.reason += Names(decision.ranks) + " is stuck at step " + std::to_string(lowest);
  } else if (lowest == highest) {
    decision.reason += "all wait at step " + std::to_string(lowest);
  } else {
    decision.reason += Names(decision.ranks) + (decision.ranks.size() == 1 ? " is" : " are") +
                       " stuck at step " + std::to_string(lowest) + ", others are at step " +
                       std::to_string(highest);
  }
  return decision;
}

// Returns whether every rank reports its computing time. If one does not, the times of whole steps
// are compared.
bool AllReportCompute(const std::vector<RankSteps>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const RankSteps& rank) { return rank.median_compute.count() > 0; });
}

HangDecision FindStraggler(const std::vector<RankSteps>& ranks) {
  const bool compute = AllReportCompute(ranks);
  const auto slowness = [&](const RankSteps& rank) {
    return compute ? rank.median_compute : rank.median_step;
  };
  std::vector<microseconds> all;
  for (const RankSteps& rank : ranks) {
    if (rank.steps_made >= kStepsToJudge && slowness(rank).count() > 0)
      all.push_back(slowness(rank));
  }
  if (all.size() < 2) return {};
  const microseconds median = Median(all);
  for (const RankSteps& rank : ranks) {
    const microseconds own = slowness(rank);
    const bool counts = own >= kLeastSlow && !rank.shares_cores;
    const bool slow = counts && rank.steps_made >= kStepsToJudge && 2 * own >= 3 * median;
    const bool told = rank.reported_slow.count() > 0 && own < 2 * rank.reported_slow;
    if (!slow || told) continue;
    HangDecision decision;
    decision.kind = HangDecision::Kind::kStraggler;
    decision.ranks = {rank.rank};
    decision.slowness = own;
    decision.reason = Names(decision.ranks) + " is slow: " + Millis(own) +
                      (compute ? " of its own work in a step" : " for a step") +
                      ", the median of all ranks is " + Millis(median);
    return decision;
  }
  return {};
}

}  // namespace

HangDecision DecideHang(Clock::time_point now, const std::vector<RankSteps>& ranks,
                        const HangOptions& options) {
  HangDecision decision = FindHang(now, ranks, options);
  return decision.kind == HangDecision::Kind::kNone ? FindStraggler(ranks) : decision;
}

void HangWatch::OnReport(const pb::RankProgress& report, Clock::time_point now) {
  if (report.rank() >= progress_.size()) progress_.resize(report.rank() + 1);
  std::optional<Progress>& progress = progress_[report.rank()];
  const bool is_new = !progress;
  if (is_new) progress.emplace().first_step = report.step();
  RankSteps& steps = progress->steps;
  if (is_new || report.step() != steps.step) hang_is_reported_ = false;
  steps.rank = report.rank();
  steps.step = report.step();
  steps.step_at = now - ReportedMicroseconds(report.since_us());
  steps.steps_made = report.step() - std::min(report.step(), progress->first_step);
  steps.median_step = ReportedMicroseconds(report.median_step_us());
  steps.median_compute = ReportedMicroseconds(report.median_compute_us());
  steps.ended = report.ended();
  steps.shares_cores = report.shares_cores();
}

void HangWatch::OnStall(Clock::time_point now) {
  for (std::optional<Progress>& progress : progress_) {
    if (progress) progress->steps.step_at = now;
  }
}

std::optional<uint64_t> HangWatch::BestStep() const {
  std::optional<uint64_t> best;
  for (const std::optional<Progress>& progress : progress_) {
    if (progress) best = std::max(best, std::optional(progress->steps.step));
  }
  return best;
}

microseconds HangWatch::ExchangeTime() const {
  std::optional<microseconds> shortest;
  for (const std::optional<Progress>& progress : progress_) {
    if (!progress || progress->steps.ended) continue;
    const RankSteps& steps = progress->steps;
    if (steps.median_compute.count() == 0 || steps.shares_cores) return microseconds(0);
    if (steps.median_step.count() == 0) continue;
    const microseconds exchange =
        std::max(steps.median_step - steps.median_compute, microseconds(1));
    shortest = std::min(shortest.value_or(exchange), exchange);
  }
  return shortest.value_or(microseconds(0));
}

HangDecision HangWatch::Check(Clock::time_point now, const HangOptions& options) {
  std::vector<RankSteps> ranks;
  for (const std::optional<Progress>& progress : progress_) {
    if (progress) ranks.push_back(progress->steps);
  }
  HangDecision decision = DecideHang(now, ranks, options);
  if (decision.kind == HangDecision::Kind::kStraggler)
    progress_[decision.ranks.front()]->steps.reported_slow = decision.slowness;
  if (decision.kind == HangDecision::Kind::kHang && std::exchange(hang_is_reported_, true))
    return {};
  return decision;
}

}  // namespace dslaunch
