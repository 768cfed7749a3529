#include "cli/tune/tuning.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace dslaunch {
namespace {

using Words = std::vector<std::string>;

Words JobArguments(const TuneRequest& request, const TuneProblem& problem,
                   const Candidate& candidate, const Words& task) {
  Words words = request.launch_words;
  const auto add = [&words](const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  add({"--json", "--show", "0", "--max_restarts", "0", "train"});
  add(request.recipe_words);
  add(task);
  for (const RecipeKey& key : KeysOf(problem, candidate)) {
    add({"--set", key.path + "=" + key.json});
  }
  return words;
}

TuneOutcome OutcomeOf(const Tuner& tuner, std::string reason, int signal, double elapsed_s) {
  TuneOutcome outcome;
  outcome.problem = tuner.problem();
  outcome.rows = tuner.rows();
  if (const TuneRow* best = tuner.best()) outcome.best = *best;
  outcome.reason = std::move(reason);
  outcome.untried = tuner.untried();
  outcome.dropped = tuner.dropped();
  outcome.signal = signal;
  outcome.elapsed_s = elapsed_s;
  return outcome;
}

constexpr char kInterrupted[] = "it was interrupted";

}  // namespace

std::vector<std::string> PlanArguments(const TuneRequest& request, const TuneProblem& problem,
                                       const Candidate& candidate) {
  return JobArguments(request, problem, candidate,
                      {"--plan_memory", "--metrics_jsonl", "/dev/stdout"});
}

// Returns the arguments of a trial. Initial weights are left out, because they take time to load
// and do not affect the time of training.
std::vector<std::string> TrialArguments(const TuneRequest& request, const TuneProblem& problem,
                                        const Candidate& candidate, int64_t steps) {
  return JobArguments(
      request, problem, candidate,
      {"--steps", std::to_string(steps), "--set", "run.mode=trial", "--set", "run.init_weights="});
}

Result<TuneOutcome> Search(const TuneRequest& request, JobRunner& runner,
                           const std::function<double()>& elapsed_s,
                           const std::function<Result<void>(const Tuner&)>& on_row) {
  TuneProblem problem = request.problem;
  const JobRun first =
      runner.Run(PlanArguments(request, problem, problem.recipe), request.budget_s);
  const PlanResult plan = ReadPlan(first);
  if (first.signal == 0 && !plan.failure.empty()) {
    return Error{static_cast<ExitCode>(FailureCode(plan.exit_code, ExitCode::kTimedOut)),
                 plan.failure};
  }
  problem.on_gpu = plan.on_gpu;
  std::vector<Candidate> space = CandidateSpace(problem, [&](const Candidate& candidate) {
    return IsValidRecipe(problem, candidate, request.recipe_json);
  });
  Tuner tuner(problem, std::move(space), request.budget_s, request.finished);
  if (first.signal != 0) return OutcomeOf(tuner, kInterrupted, first.signal, elapsed_s());
  tuner.OnPlan(problem.recipe, plan);
  DSL_TRY(on_row(tuner));

  while (true) {
    const TuneAction action = tuner.Next(elapsed_s());
    int signal = 0;
    if (const auto* end = std::get_if<TuningEnd>(&action)) {
      return OutcomeOf(tuner, end->reason, signal, elapsed_s());
    }
    if (const auto* next = std::get_if<PlanMemoryOf>(&action)) {
      const JobRun run = runner.Run(PlanArguments(request, problem, next->candidate),
                                    std::max(1.0, request.budget_s - elapsed_s()));
      signal = run.signal;
      if (signal == 0) tuner.OnPlan(next->candidate, ReadPlan(run));
    } else if (const auto* trial = std::get_if<RunTrialOf>(&action)) {
      const JobRun run = runner.Run(
          TrialArguments(request, problem, trial->candidate, trial->steps), trial->limit_s);
      signal = run.signal;
      if (signal == 0) {
        tuner.OnTrialEnd(trial->candidate, ReadTrial(run, problem.global_batch));
      }
    }
    if (signal != 0) return OutcomeOf(tuner, kInterrupted, signal, elapsed_s());
    DSL_TRY(on_row(tuner));
  }
}

}  // namespace dslaunch
