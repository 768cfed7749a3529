#include "cli/tune_main.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/os/put_file.h"
#include "base/text/sanitize.h"
#include "cli/commands/version.h"
#include "cli/job_setup.h"
#include "cli/output/print_text.h"
#include "cli/plan/plan_info.h"
#include "cli/tune/recipe_text.h"
#include "cli/tune/trial_process.h"
#include "cli/tune/tune_report.h"
#include "cli/tune/tune_state.h"
#include "cli/tune/tuning.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr char kStateSuffix[] = ".tune";

std::string Executable() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).string();
}

// Returns whether `set` assigns a key that the jobs of a search set themselves.
bool IsSetByJobs(const std::string& set) {
  const std::string key = set.substr(0, set.find('='));
  return key == "run.steps" || key == "run.epochs" || key == "run.mode" ||
         key == "run.metrics_jsonl";
}

// Returns the words for the recipe and its options, for the jobs of the search.
Words RecipeWords(const TrainOptions& train) {
  Words words;
  if (train.recipe) words.push_back(*train.recipe);
  for (const auto& [option, value] :
       {std::pair("--deepspeed_config", train.deepspeed_config), std::pair("--data", train.data),
        std::pair("--plugin", train.plugin)}) {
    if (value) words.insert(words.end(), {option, *value});
  }
  if (train.seed) words.insert(words.end(), {"--seed", std::to_string(*train.seed)});
  if (train.deterministic) words.emplace_back("--deterministic");
  for (const std::string& set : train.sets) {
    if (!IsSetByJobs(set)) words.insert(words.end(), {"--set", set});
  }
  return words;
}

// Returns an error for jobs whose ranks this process does not start.
Result<void> CheckStyle(const LaunchOptions& options) {
  if (!options.per_node) return {};
  return Error{ExitCode::kUsage,
               "tune starts each trial on all nodes itself, so it cannot run as one command on "
               "each node; give it a hostfile (--hostfile)"};
}

Result<int> KnownRanks(const LaunchPlan& plan) {
  const int ranks = CertainRanks(plan);
  if (ranks > 0) return ranks;
  return Error{ExitCode::kUsage,
               "tune needs a fixed number of ranks, because the fastest configuration depends on "
               "it; give one number of nodes and of ranks"};
}

std::string OutputFile(const LaunchOptions& options, const LoadedRecipe& recipe) {
  if (!options.tune.output.empty()) return options.tune.output;
  return fs::path(recipe.source).stem().string() + ".tuned.yaml";
}

Result<std::vector<TuneRow>> FinishedTrials(const std::string& output, const std::string& key) {
  const std::string state = output + kStateSuffix;
  std::error_code error;
  if (fs::exists(state, error)) {
    DSL_TRY_ASSIGN(const std::string text, ReadTextFile(state));
    return ReadState(text, key, state);
  }
  if (!fs::exists(output, error)) return std::vector<TuneRow>();
  return Error{ExitCode::kUsage, "--output " + Truncate(output) +
                                     " exists and is not from a search; remove it, or give another "
                                     "file"};
}

// Returns the recipe that was found, with the section `launch` of the file from which it was
// derived.
Result<std::string> FoundRecipe(const TuneOutcome& outcome, const LoadedRecipe& recipe) {
  nlohmann::json found = nlohmann::json::parse(
      WithKeys(recipe.json, KeysOf(outcome.problem, outcome.best->candidate)), nullptr, false);
  found.erase("engine_source");  // not needed, because the file contains the engine section
  DSL_TRY_ASSIGN(const std::string text, ReadTextFile(recipe.source));
  DSL_TRY_ASSIGN(const nlohmann::json document, ParseYaml(text, recipe.source));
  if (document.contains(kLaunchSection)) found[kLaunchSection] = document[kLaunchSection];
  const std::string comment = "Found by dslaunch tune for " +
                              std::to_string(outcome.problem.ranks) +
                              " ranks: " + ChoiceText(outcome);
  return RecipeYaml(found.dump(), comment);
}

// A search, from the command line to the files that it writes.
class TuneCommand {
 public:
  TuneCommand(const LaunchOptions& options, LoadedRecipe recipe, const LaunchPlan& plan, int ranks,
              Terminal& terminal)
      : options_(options),
        recipe_(std::move(recipe)),
        output_(OutputFile(options, recipe_)),
        terminal_(terminal) {
    request_.problem =
        MakeTuneProblem(recipe_.json, ranks, static_cast<int64_t>(plan.nodes.size()));
    request_.problem.ranks_of_nodes = RanksOfNodes(plan);
    request_.recipe_json = recipe_.json;
    request_.launch_words = options.tune.launch_words;
    request_.recipe_words = RecipeWords(options.train);
    request_.budget_s = options.tune.budget_s;
    Words place = request_.launch_words;
    place.push_back(std::to_string(ranks));
    for (const Host& node : plan.nodes) place.push_back(node.name);
    key_ = TuneKey(recipe_.json, place);
  }

  Result<int> Run() {
    DSL_TRY_ASSIGN(request_.finished, FinishedTrials(output_, key_));
    if (!request_.finished.empty()) {
      Tell(std::to_string(request_.finished.size()) + " finished trials are taken from " +
           Truncate(output_ + kStateSuffix));
    }
    const Clock::time_point start = Clock::now();
    const auto elapsed_s = [start] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    ProcessJobRunner runner(Executable());
    DSL_TRY_ASSIGN(
        const TuneOutcome outcome,
        Search(request_, runner, elapsed_s, [this](const Tuner& tuner) { return OnRow(tuner); }));
    DSL_TRY(Report(outcome));
    if (outcome.signal != 0) return ExitCodeForSignal(outcome.signal);
    if (!outcome.best) {
      return Error{ExitCode::kUnavailable, NothingFoundText(outcome)};
    }
    return options_.tune.then_train ? Train(outcome) : ToInt(ExitCode::kOk);
  }

 private:
  void Tell(const std::string& line) {
    if (options_.log_level < LogLevel::kInfo) return;
    terminal_.Err("dslaunch: " + line);
    terminal_.Drain(Deadline::After(kDrainTimeout));
  }

  // Stores the rows found so far, and prints the newest row.
  Result<void> OnRow(const Tuner& tuner) {
    const std::vector<TuneRow>& rows = tuner.rows();
    if (rows == rows_) return {};
    const auto [now, before] = std::ranges::mismatch(rows, rows_);
    if (rows.size() != request_.finished.size() || !rows_.empty()) {
      Tell(ProgressLine(tuner.problem(), *now, static_cast<size_t>(now - rows.begin()) + 1));
    }
    rows_ = rows;
    return PutFile(output_ + kStateSuffix, StateText(tuner.problem(), key_, rows), true);
  }

  // Prints the table, or JSON, and writes the recipe if one was found.
  Result<void> Report(const TuneOutcome& outcome) {
    std::string written;
    if (outcome.best) {
      DSL_TRY_ASSIGN(const std::string text, FoundRecipe(outcome, recipe_));
      DSL_TRY(PutFile(output_, text, /*overwrite=*/true));
      written = output_;
    }
    if (options_.json) return PrintText(TuneJson(outcome, written).dump() + "\n");
    if (!outcome.rows.empty()) DSL_TRY(PrintText(TuneTable(outcome)));
    if (outcome.best) {
      DSL_TRY(PrintText(ChoiceText(outcome) + "\nthe recipe is in " + written + "\n"));
    }
    return {};
  }

  Result<int> Train(const TuneOutcome& outcome) {
    Words words = {Executable()};
    const auto add = [&words](const Words& more) {
      words.insert(words.end(), more.begin(), more.end());
    };
    add(options_.tune.launch_words);
    add({"train"});
    add(options_.tune.train_words);
    for (const RecipeKey& key : KeysOf(outcome.problem, outcome.best->candidate)) {
      add({"--set", key.path + "=" + key.json});
    }
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execv(pointers.front(), pointers.data());
    return Error{ExitCode::kCannotExecute,
                 "cannot start " + words.front() + ": " + std::strerror(errno)};
  }

  const LaunchOptions& options_;
  const LoadedRecipe recipe_;
  const std::string output_;
  Terminal& terminal_;
  TuneRequest request_;
  std::string key_;
  std::vector<TuneRow> rows_;  // rows that were already printed and stored
};

}  // namespace

Result<int> TuneMain(const LaunchOptions& options, Terminal& terminal) {
  DSL_TRY(CheckStyle(options));
  DSL_TRY(CheckTrainer(BinaryFolder().string()));
  DSL_TRY_ASSIGN(const std::string cwd, WorkingDirectory());
  DSL_TRY_ASSIGN(const LaunchPlan plan, MakePlan(options));
  DSL_TRY_ASSIGN(const int ranks, KnownRanks(plan));
  DSL_TRY_ASSIGN(LoadedRecipe recipe, FindRecipe(options, cwd));
  DSL_TRY(CheckContent(recipe, ranks, RanksOfNodes(plan)));
  return TuneCommand(options, std::move(recipe), plan, ranks, terminal).Run();
}

}  // namespace dslaunch
