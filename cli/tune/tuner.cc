#include "cli/tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "cli/tune/cost_model.h"

namespace dslaunch {
namespace {

constexpr double kMeasureForS = 1;  // approximate total time of a trial's measured steps
// Bounds of the number of measured steps in a trial.
constexpr int64_t kFewestSteps = 5, kMostSteps = 30;
// Largest excess of a finalist's step time over the best, as a fraction.
constexpr double kFinalWithin = 0.05;
constexpr double kPatience = 5;  // limit of a trial as a multiple of its expected time
constexpr double kShortestLimitS = 30;
constexpr size_t kMostFailures = 3;  // number of failures without a success that ends the search
constexpr int kFailuresOfValue = 2;
constexpr size_t kLargeSpace = 100;  // a space with more candidates counts as large
constexpr double kOptimism = 1.5, kOptimismInLargeSpace = 2;

bool OnlyMicroBatchDiffers(Candidate one, const Candidate& other) {
  one[Axis::kMicroBatch] = other[Axis::kMicroBatch];
  return one == other;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

double StepSeconds(const TuneRow& row) { return Median(row.steps_s); }

double StepNoise(const TuneRow& row) {
  // Ratio of the standard deviation to the median absolute deviation of normally distributed
  // values.
  constexpr double kDeviationsOfMedian = 1.4826;
  const double median = StepSeconds(row);
  std::vector<double> distances;
  for (const double step_s : row.steps_s) distances.push_back(std::abs(step_s - median));
  return kDeviationsOfMedian * Median(std::move(distances)) / median;
}

Tuner::Tuner(const TuneProblem& problem, std::vector<Candidate> space, double budget_s,
             const std::vector<TuneRow>& finished)
    : problem_(problem),
      budget_s_(budget_s),
      optimism_(space.size() > kLargeSpace ? kOptimismInLargeSpace : kOptimism),
      open_(std::move(space)),
      model_(problem) {
  for (const TuneRow& row : finished) {
    if (std::ranges::find(open_, row.candidate) == open_.end()) continue;
    Decide(row);
  }
}

void Tuner::Decide(TuneRow row) {
  std::erase(open_, row.candidate);
  if (row.end == TrialEnd::kMeasured) model_.Add(row.candidate, StepSeconds(row), StepNoise(row));
  rows_.push_back(std::move(row));
  const TuneRow& decided = rows_.back();
  if (decided.end == TrialEnd::kDoesNotFit || decided.end == TrialEnd::kOutOfMemory) {
    DropLarger(decided);
  }
  DropFailingValues();
}

template <class Predicate>
void Tuner::Drop(const Predicate& falls_out) {
  dropped_ += std::erase_if(open_, falls_out);
}

// Drops the candidates with larger micro-batches, and smaller candidates for which the activations
// of the plan are too large too.
void Tuner::DropLarger(const TuneRow& row) {
  const auto plan = plans_.find(row.candidate);
  const auto micro = static_cast<double>(row.candidate[Axis::kMicroBatch]);
  Drop([&](const Candidate& other) {
    if (!OnlyMicroBatchDiffers(other, row.candidate)) return false;
    const auto own = static_cast<double>(other[Axis::kMicroBatch]);
    if (own >= micro) return true;
    if (row.end != TrialEnd::kDoesNotFit || plan == plans_.end()) return false;
    const auto passes = static_cast<double>(plan->second.passes_bytes);
    const auto rest = static_cast<double>(plan->second.needs_bytes) - passes;
    return rest + passes * own / micro > static_cast<double>(plan->second.has_bytes);
  });
}

void Tuner::DropFailingValues() {
  for (size_t axis = 0; axis < kAxisCount; ++axis) {
    std::map<int64_t, int> failures;
    std::map<int64_t, int> successes;
    for (const TuneRow& row : rows_) {
      const int64_t value = row.candidate.values[axis];
      failures[value] += row.end == TrialEnd::kFailed ? 1 : 0;
      successes[value] += row.end == TrialEnd::kMeasured ? 1 : 0;
    }
    const bool another_works =
        std::ranges::any_of(successes, [](const auto& value) { return value.second > 0; });
    if (!another_works) continue;
    Drop([&](const Candidate& other) {
      const int64_t value = other.values[axis];
      return failures[value] >= kFailuresOfValue && successes[value] == 0;
    });
  }
}

TuneRow* Tuner::Find(const Candidate& candidate) {
  const auto found = std::ranges::find(rows_, candidate, &TuneRow::candidate);
  return found == rows_.end() ? nullptr : &*found;
}

double Tuner::FastestSeconds() const {
  double fastest = std::numeric_limits<double>::infinity();
  for (const TuneRow& row : rows_) {
    if (row.end == TrialEnd::kMeasured) fastest = std::min(fastest, StepSeconds(row));
  }
  return fastest;
}

double Tuner::MayTake(const Candidate& candidate) const {
  const StepTimeModel::Prediction prediction = model_.Predict(candidate);
  return prediction.seconds * std::exp(-optimism_ * prediction.deviation);
}

Candidate Tuner::Promising() const {
  if (open_.front() == problem_.recipe) return open_.front();
  return *std::ranges::min_element(open_, {}, [&](const Candidate& candidate) {
    return model_.empty() ? RelativeCost(problem_, candidate) : MayTake(candidate);
  });
}

TuneAction Tuner::Next(double elapsed_s) {
  if (finalists_) return NextFinal(elapsed_s);
  const auto failed = std::ranges::count_if(rows_, [](const TuneRow& row) {
    return row.end == TrialEnd::kFailed || row.end == TrialEnd::kTimedOut;
  });
  if (model_.empty() && static_cast<size_t>(failed) >= kMostFailures) {
    return TuningEnd{"the first " + std::to_string(failed) + " trials failed"};
  }
  if (open_.empty()) return BeginFinals(elapsed_s, "no further configuration is possible");
  const Candidate candidate = Promising();
  const bool is_recipe = candidate == problem_.recipe;
  if (!model_.empty() && !is_recipe && MayTake(candidate) > FastestSeconds() * (1 - kWorthwhile)) {
    return BeginFinals(elapsed_s, "no other configuration promises to be faster");
  }
  return TryOrEnd(candidate, elapsed_s);
}

TuneAction Tuner::TryOrEnd(const Candidate& candidate, double elapsed_s) {
  const RunTrialOf trial = TrialOf(candidate, elapsed_s);
  const bool first = slowest_trial_s_ == 0;
  if (elapsed_s >= budget_s_ || (!first && elapsed_s + ExpectedWall(trial) > budget_s_)) {
    return BeginFinals(elapsed_s, "the time of --budget is used up");
  }
  if (!plans_.contains(candidate)) return PlanMemoryOf{candidate};
  predicted_s_ = trial.predicted_s;
  return trial;
}

RunTrialOf Tuner::TrialOf(const Candidate& candidate, double elapsed_s) const {
  RunTrialOf trial{.candidate = candidate};
  int64_t steps = kFewestSteps;
  if (!model_.empty()) {
    trial.predicted_s = model_.Predict(candidate).seconds;
    steps = std::clamp(static_cast<int64_t>(std::ceil(kMeasureForS / *trial.predicted_s)),
                       kFewestSteps, kMostSteps);
  }
  trial.steps = kWarmUpSteps + steps;
  const double left_s = std::max(budget_s_ - elapsed_s, 1.0);
  const double expected_s = std::max(ExpectedWall(trial), slowest_trial_s_);
  trial.limit_s = slowest_trial_s_ == 0
                      ? left_s
                      : std::min(left_s, std::max(kShortestLimitS, kPatience * expected_s));
  return trial;
}

double Tuner::ExpectedWall(const RunTrialOf& trial) const {
  return startup_s_ + static_cast<double>(trial.steps) * trial.predicted_s.value_or(0);
}

TuneAction Tuner::BeginFinals(double elapsed_s, const std::string& reason) {
  reason_ = reason;
  std::vector<std::pair<double, Candidate>> fast;
  for (const TuneRow& row : rows_) {
    if (row.end != TrialEnd::kMeasured) continue;
    const double seconds = StepSeconds(row);
    if (seconds <= FastestSeconds() * (1 + kFinalWithin)) fast.emplace_back(seconds, row.candidate);
  }
  std::ranges::sort(fast);
  fast.resize(std::min(fast.size(), kFinalists));
  finalists_.emplace();
  for (const auto& [seconds, candidate] : fast) {
    if (fast.size() > 1 && Find(candidate)->trials == 1) finalists_->push_back(candidate);
  }
  std::ranges::reverse(*finalists_);
  return NextFinal(elapsed_s);
}

TuneAction Tuner::NextFinal(double elapsed_s) {
  if (finalists_->empty()) return TuningEnd{reason_};
  const RunTrialOf trial = TrialOf(finalists_->back(), elapsed_s);
  if (elapsed_s + ExpectedWall(trial) > budget_s_) {
    finalists_->clear();
    return TuningEnd{reason_};
  }
  return trial;
}

void Tuner::OnPlan(const Candidate& candidate, const PlanResult& plan) {
  plans_[candidate] = plan;
  const auto open = std::ranges::find(open_, candidate);
  if (open == open_.end()) return;
  TuneRow row{.candidate = candidate,
              .needs_bytes = plan.needs_bytes,
              .has_bytes = plan.has_bytes,
              .cause = plan.failure};
  if (!model_.empty()) row.predicted_s = model_.Predict(candidate).seconds;
  if (!plan.failure.empty()) {
    row.end = TrialEnd::kFailed;
  } else if (plan.has_bytes > 0 && plan.needs_bytes > plan.has_bytes) {
    row.end = TrialEnd::kDoesNotFit;
  } else {
    return;
  }
  Decide(std::move(row));
}

void Tuner::OnTrialEnd(const Candidate& candidate, const TrialResult& result) {
  slowest_trial_s_ = std::max(slowest_trial_s_, result.wall_s);
  if (result.end == TrialEnd::kMeasured) {
    const double steps_s = std::accumulate(result.steps_s.begin(), result.steps_s.end(), 0.0);
    startup_s_ = std::max(startup_s_, result.wall_s - steps_s);
  }
  if (TuneRow* const row = Find(candidate)) {  // the candidate has a row, so it is a finalist
    finalists_->pop_back();
    row->end = result.end;
    row->cause = result.cause;
    row->steps_s.insert(row->steps_s.end(), result.steps_s.begin(), result.steps_s.end());
    row->trials += 1;
    return;
  }
  const PlanResult& plan = plans_[candidate];
  Decide({.candidate = candidate,
          .end = result.end,
          .predicted_s = predicted_s_,
          .steps_s = result.steps_s,
          .trials = 1,
          .needs_bytes = plan.needs_bytes,
          .has_bytes = plan.has_bytes,
          .peak_bytes = result.peak_bytes,
          .cause = result.cause});
}

const TuneRow* Tuner::best() const {
  const double fastest = FastestSeconds();
  const TuneRow* best = nullptr;
  const auto rank = [&](const TuneRow& row) {
    const bool own = row.candidate == problem_.recipe;
    return std::tuple(own ? 0 : 1, ComplexityOf(row.candidate), StepSeconds(row));
  };
  for (const TuneRow& row : rows_) {
    if (row.end != TrialEnd::kMeasured || StepSeconds(row) > fastest * (1 + kTie)) continue;
    if (best == nullptr || rank(row) < rank(*best)) best = &row;
  }
  return best;
}

}  // namespace dslaunch
