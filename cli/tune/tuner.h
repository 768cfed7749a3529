// Decides which configuration `dslaunch tune` tries next and when it stops. The caller plans
// memory, runs trials and passes the time.
//
// The search is best-first by a model. The recipe's own configuration is always first. After that,
// the next configuration is always the one that may be fastest: the one with the least predicted
// step time minus the possible error of the prediction (StepTimeModel; 1.5 standard deviations, or
// 2 if there are more than 100 configurations, because stopping too early is then the greater
// loss). Its memory is planned first. A configuration that does not fit is dropped, with all larger
// micro-batches of the same layout; so are smaller micro-batches whose activations, in proportion,
// do not fit either. A value of an axis that failed twice and never worked is dropped too.
//
// The search ends when no configuration promises to be kWorthwhile faster than the best one, when
// the next trial does not fit into the remaining time, or when no configuration is left. If time
// permits, the fastest configurations, at most kFinalists, are then measured again, because the
// fastest of many measurements may be a lucky one. Among configurations that are equally fast
// within kTie, the recipe's own configuration is chosen, else the simplest one (ComplexityOf).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/tune/candidate.h"
#include "cli/tune/step_time_model.h"

namespace dslaunch {

inline constexpr double kWorthwhile = 0.02;  // least relative gain for which the search continues
inline constexpr double kTie = 0.01;  // relative difference below which step times count as equal
inline constexpr size_t kFinalists = 3;  // largest number of configurations that are measured again
// Number of steps at the start of a trial that are not measured.
inline constexpr int64_t kWarmUpSteps = 2;

// The result of planning and trying a configuration.
enum class TrialEnd { kMeasured, kDoesNotFit, kOutOfMemory, kTimedOut, kFailed };

// A configuration that was planned or tried, with the results.
struct TuneRow {
  Candidate candidate;
  TrialEnd end = TrialEnd::kMeasured;
  // Prediction before the trial; nullopt for the first configuration.
  std::optional<double> predicted_s = {};
  // Times of the measured steps in all trials of the configuration.
  std::vector<double> steps_s = {};
  int64_t trials = 0;       // number of trials that measured the configuration
  int64_t needs_bytes = 0;  // planned memory of a rank; 0 if unknown
  int64_t has_bytes = 0;    // available memory of a rank; 0 if unknown
  int64_t peak_bytes = 0;   // measured peak of a rank's tensors; 0 if not known
  std::string cause = {};   // reason in one line why the configuration was dropped
  bool operator==(const TuneRow&) const = default;
};

// Returns the median of the measured steps. Precondition: the row was measured.
double StepSeconds(const TuneRow& row);
// Returns the relative deviation of the measured steps, computed from their median absolute
// deviation. Precondition: the row was measured.
double StepNoise(const TuneRow& row);

struct PlanResult {
  int64_t needs_bytes = 0;
  int64_t has_bytes = 0;     // available memory of a rank; 0 if unknown
  int64_t passes_bytes = 0;  // part of needs_bytes that grows with the micro-batch
  bool on_gpu = false;
  std::string failure = {};  // reason in one line why there is no plan; empty if there is one
  int exit_code = 0;         // exit code of the planning job
};

struct TrialResult {
  TrialEnd end = TrialEnd::kMeasured;  // result of the trial; any value except kDoesNotFit
  std::vector<double> steps_s = {};    // times of steps after the warm-up; not empty if measured
  int64_t peak_bytes = 0;
  double wall_s = 0;       // duration of the whole trial in seconds
  std::string cause = {};  // reason why the trial has no measurement; empty if it has one
};

// An action that plans the memory of a candidate; answered by OnPlan().
struct PlanMemoryOf {
  Candidate candidate;
};
// An action that runs a trial of a candidate; answered by OnTrialEnd().
struct RunTrialOf {
  Candidate candidate;
  int64_t steps = 0;   // number of steps to train, including kWarmUpSteps
  double limit_s = 0;  // time after which the trial is ended
  // Predicted step time of the configuration; nullopt without a prediction.
  std::optional<double> predicted_s = {};
};
// An action that ends the search.
struct TuningEnd {
  std::string reason;  // one clause, such as "no other configuration promises to be faster"
};
using TuneAction = std::variant<PlanMemoryOf, RunTrialOf, TuningEnd>;

class Tuner {
 public:
  // Prepares a search. `space` begins with the recipe's configuration (CandidateSpace). `finished`
  // are rows of an earlier search about the same problem, which are not tried again. Rows of
  // candidates that are not in `space` are left out.
  Tuner(const TuneProblem& problem, std::vector<Candidate> space, double budget_s,
        const std::vector<TuneRow>& finished = {});

  // Returns the next action after `elapsed_s` seconds of the search. Call OnPlan or OnTrialEnd with
  // its result before the next call.
  TuneAction Next(double elapsed_s);

  // Handles the result of PlanMemoryOf.
  void OnPlan(const Candidate& candidate, const PlanResult& plan);

  // Handles the result of RunTrialOf.
  void OnTrialEnd(const Candidate& candidate, const TrialResult& result);

  const TuneProblem& problem() const { return problem_; }
  // Returns the rows in the order in which they were decided.
  const std::vector<TuneRow>& rows() const { return rows_; }
  // Returns the number of candidates that were neither tried nor dropped.
  size_t untried() const { return open_.size(); }
  // Returns the number of candidates without a row, because they were dropped together with a
  // candidate that has a row.
  size_t dropped() const { return dropped_; }
  // Returns the chosen row; nullptr if no candidate was measured.
  const TuneRow* best() const;

 private:
  // Returns an optimistic step time of the candidate, in seconds. Precondition: at least one
  // candidate was measured.
  double MayTake(const Candidate& candidate) const;
  // Returns the candidate to try next. Precondition: open_ is not empty.
  Candidate Promising() const;
  TuneAction TryOrEnd(const Candidate& candidate, double elapsed_s);
  TuneAction BeginFinals(double elapsed_s, const std::string& reason);
  TuneAction NextFinal(double elapsed_s);
  RunTrialOf TrialOf(const Candidate& candidate, double elapsed_s) const;
  double ExpectedWall(const RunTrialOf& trial) const;
  double FastestSeconds() const;
  TuneRow* Find(const Candidate& candidate);
  void Decide(TuneRow row);
  template <class Predicate>
  void Drop(const Predicate& falls_out);
  void DropLarger(const TuneRow& row);
  void DropFailingValues();

  const TuneProblem problem_;
  const double budget_s_;
  const double optimism_;  // number of standard deviations that are subtracted from predictions
  std::vector<Candidate> open_;  // candidates to try, in the order of the space
  std::map<Candidate, PlanResult> plans_;
  std::vector<TuneRow> rows_;
  StepTimeModel model_;
  size_t dropped_ = 0;
  double startup_s_ = 0;  // longest time of a trial without its measured steps
  double slowest_trial_s_ = 0;
  std::optional<double> predicted_s_;  // prediction for the running trial
  // Candidates that remain to be measured again, the next one last; nullopt while the search
  // continues.
  std::optional<std::vector<Candidate>> finalists_;
  std::string reason_;  // reason why the search ended
};

}  // namespace dslaunch
