// Decides what `dslaunch tune` tries next and when it stops. Pure: the caller plans memory, runs
// trials and passes the time.
//
// The search is best-first by a model. The recipe's own configuration is first, whatever it costs.
// Then always the configuration that may be fastest: the least predicted step time, minus what the
// prediction may be wrong (StepTimeModel; 1.5 standard deviations, 2 if there are more than 100
// configurations, because a wrong stop is then the greater loss). Its memory is planned first.
// What does not fit falls out, and with it larger micro-batches of the same layout; so do those
// smaller ones whose activations, in proportion, do not fit either. A value of an axis that failed
// twice and never worked falls out too.
//
// The search ends when no configuration promises to be kWorthwhile faster than the best one, when
// the next trial does not fit into the time that is left, or when there is none. If the time allows
// it, the fastest ones, at most kFinalists, are then measured again, because the luckiest of many
// measurements is not the fastest. Among those that are equally fast within kTie the simplest one
// wins (ComplexityOf), and the recipe's own before all others.
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

inline constexpr double kWorthwhile = 0.02;
inline constexpr double kTie = 0.01;
inline constexpr size_t kFinalists = 3;
inline constexpr int64_t kWarmUpSteps = 2;  // steps of each trial that are not measured

// How planning and trying a configuration ended.
enum class TrialEnd { kMeasured, kDoesNotFit, kOutOfMemory, kTimedOut, kFailed };

// A configuration that was planned or tried, with the results.
struct TuneRow {
  Candidate candidate;
  TrialEnd end = TrialEnd::kMeasured;
  std::optional<double> predicted_s = {};  // before it was tried; nullopt for the first
  std::vector<double> steps_s = {};        // times of the measured steps of all its trials
  int64_t trials = 0;                      // number of trials that measured it
  int64_t needs_bytes = 0;                 // memory that a rank needs by the plan; 0: not known
  int64_t has_bytes = 0;                   // memory that a rank has; 0: not known
  int64_t peak_bytes = 0;                  // measured peak of a rank's tensors; 0: not known
  std::string cause = {};                  // why it fell out, one line
  bool operator==(const TuneRow&) const = default;
};

// Median of the measured steps. Precondition: it was measured.
double StepSeconds(const TuneRow& row);
// Relative deviation of the measured steps, from their median absolute deviation. Precondition: it
// was measured.
double StepNoise(const TuneRow& row);

struct PlanResult {
  int64_t needs_bytes = 0;
  int64_t has_bytes = 0;     // memory that a rank has; 0: not known
  int64_t passes_bytes = 0;  // the part of needs_bytes that grows with the micro-batch
  bool on_gpu = false;
  std::string failure = {};  // why there is no plan, one line; empty: there is one
  int exit_code = 0;         // exit code of the planning job
};

struct TrialResult {
  TrialEnd end = TrialEnd::kMeasured;  // any but kDoesNotFit
  std::vector<double> steps_s = {};    // times of steps after the warm-up; not empty if measured
  int64_t peak_bytes = 0;
  double wall_s = 0;       // duration of the whole trial
  std::string cause = {};  // why it was not measured; empty if it was
};

struct PlanMemoryOf {
  Candidate candidate;
};
struct RunTrialOf {
  Candidate candidate;
  int64_t steps = 0;                       // steps to train, including kWarmUpSteps
  double limit_s = 0;                      // time after which the trial is ended
  std::optional<double> predicted_s = {};  // predicted step time
};
struct TuningEnd {
  std::string reason;  // one clause: "no other configuration promises to be faster"
};
using TuneAction = std::variant<PlanMemoryOf, RunTrialOf, TuningEnd>;

class Tuner {
 public:
  // `space` begins with the recipe's configuration (CandidateSpace). `finished` are rows of an
  // earlier search about the same problem, which are not tried again; rows of other candidates
  // are left out.
  Tuner(const TuneProblem& problem, std::vector<Candidate> space, double budget_s,
        const std::vector<TuneRow>& finished = {});

  // Returns what to do after `elapsed_s` seconds of the search. Call OnPlan or OnTrialEnd with its
  // result before the next call.
  TuneAction Next(double elapsed_s);
  void OnPlan(const Candidate& candidate, const PlanResult& plan);
  void OnTrialEnd(const Candidate& candidate, const TrialResult& result);

  const TuneProblem& problem() const { return problem_; }
  // The rows in the order in which they were decided.
  const std::vector<TuneRow>& rows() const { return rows_; }
  // The number of candidates that were neither tried nor fell out.
  size_t untried() const { return open_.size(); }
  // The number of candidates that have no row of their own, because they fell out with one that
  // has.
  size_t dropped() const { return dropped_; }
  // The chosen row; nullptr if nothing was measured.
  const TuneRow* best() const;

 private:
  // Returns an optimistic step time of the candidate, in seconds. Precondition: something was
  // measured.
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
  const double optimism_;        // number of deviations that are subtracted from predictions
  std::vector<Candidate> open_;  // in the order of the space
  std::map<Candidate, PlanResult> plans_;
  std::vector<TuneRow> rows_;
  StepTimeModel model_;
  size_t dropped_ = 0;
  double startup_s_ = 0;  // longest time of a trial apart from its measured steps
  double slowest_trial_s_ = 0;
  std::optional<double> predicted_s_;  // prediction for the running trial
  // Candidates that remain to be measured again, the next one last; nullopt: the search continues.
  std::optional<std::vector<Candidate>> finalists_;
  std::string reason_;  // why the search ended
};

}  // namespace dslaunch
