#include "cli/tune/tune_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/count.h"
#include "base/text/size_text.h"
#include "base/text/text_table.h"
#include "cli/tune/tune_state.h"

namespace dslaunch {
namespace {

std::string StepText(double seconds) {
  char text[32];
  const bool in_ms = seconds < 1;
  std::snprintf(text, sizeof text, in_ms ? "%.4g ms" : "%.4g s", in_ms ? seconds * 1e3 : seconds);
  return text;
}

std::string PercentText(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", std::abs(part) * 100);
  return text;
}

std::string MemoryText(const TuneRow& row) {
  const int64_t bytes = row.peak_bytes > 0 ? row.peak_bytes : row.needs_bytes;
  return bytes > 0 ? SizeText(static_cast<uint64_t>(bytes)) : "-";
}

// Returns why a row without a measurement was dropped.
std::string FallOutText(const TuneRow& row) {
  if (row.end == TrialEnd::kDoesNotFit) {
    return "does not fit: needs " + SizeText(static_cast<uint64_t>(row.needs_bytes)) + " of " +
           SizeText(static_cast<uint64_t>(row.has_bytes));
  }
  const std::string kind = row.end == TrialEnd::kOutOfMemory ? "out of memory"
                           : row.end == TrialEnd::kTimedOut  ? "ended"
                                                             : "failed";
  return row.cause.starts_with(kind) ? row.cause : kind + ": " + row.cause;
}

const TuneRow* RecipeRow(const TuneOutcome& outcome) {
  const auto found = std::ranges::find(outcome.rows, outcome.problem.recipe, &TuneRow::candidate);
  const bool measured = found != outcome.rows.end() && found->end == TrialEnd::kMeasured;
  return measured ? &*found : nullptr;
}

std::string ResultText(const TuneOutcome& outcome, const TuneRow& row) {
  std::string text = row.candidate == outcome.problem.recipe ? "the recipe; " : "";
  if (row.end != TrialEnd::kMeasured) return text + FallOutText(row);
  if (row.candidate == outcome.best->candidate) return text + "chosen";
  const double more = StepSeconds(row) / StepSeconds(*outcome.best) - 1;
  if (std::abs(more) < kTie) return text + "as fast, but less simple";
  return text + PercentText(more) + (more > 0 ? " slower" : " faster");
}

}  // namespace

std::string ProgressLine(const TuneProblem& problem, const TuneRow& row, size_t number) {
  std::string text =
      "trial " + std::to_string(number) + ": " + CandidateText(problem, row.candidate) + ": ";
  if (row.end != TrialEnd::kMeasured) return text + FallOutText(row);
  text += StepText(StepSeconds(row)) + " a step";
  if (row.trials > 1) return text + ", measured again";
  if (row.predicted_s) text += " (predicted " + StepText(*row.predicted_s) + ")";
  return text + ", " + MemoryText(row);
}

std::string TuneTable(const TuneOutcome& outcome) {
  std::vector<std::string> head = AxisHeads();
  for (const char* column : {"predicted", "measured", "memory", "result"}) {
    head.emplace_back(column);
  }
  std::vector<TuneRow> sorted = outcome.rows;
  std::ranges::stable_sort(sorted, {}, [](const TuneRow& row) {
    return row.end == TrialEnd::kMeasured ? StepSeconds(row)
                                          : std::numeric_limits<double>::infinity();
  });
  std::vector<std::vector<std::string>> table = {head};
  for (const TuneRow& row : sorted) {
    std::vector<std::string> cells = AxisCells(outcome.problem, row.candidate);
    cells.push_back(row.predicted_s ? StepText(*row.predicted_s) : "-");
    cells.push_back(row.end == TrialEnd::kMeasured ? StepText(StepSeconds(row)) : "-");
    cells.push_back(MemoryText(row));
    cells.push_back(ResultText(outcome, row));
    table.push_back(std::move(cells));
  }
  std::string text = TextTable(table);
  if (outcome.dropped > 0) {
    text += Count(outcome.dropped, "further configuration") + " fell out with these\n";
  }
  if (outcome.untried > 0) text += Count(outcome.untried, "configuration") + " not tried\n";
  return text + "the search ended after " + DurationText(std::llround(outcome.elapsed_s) * 1000) +
         ": " + outcome.reason + "\n";
}

std::string ChoiceText(const TuneOutcome& outcome) {
  const TuneRow& best = *outcome.best;
  const double seconds = StepSeconds(best);
  std::string text =
      CandidateText(outcome.problem, best.candidate) + ": " + StepText(seconds) + " a step";
  const TuneRow* const recipe = RecipeRow(outcome);
  if (best.candidate == outcome.problem.recipe) return text + ", as the recipe is";
  if (recipe == nullptr) return text;
  const double before = StepSeconds(*recipe);
  return text + ", " + PercentText(1 - seconds / before) + " less than the recipe's " +
         StepText(before);
}

nlohmann::ordered_json TuneJson(const TuneOutcome& outcome, const std::string& output) {
  using Object = nlohmann::ordered_json;
  Object trials = Object::array();
  for (const TuneRow& row : outcome.rows) trials.push_back(RowJson(outcome.problem, row));
  Object best;
  if (outcome.best) {
    best = RowJson(outcome.problem, *outcome.best);
    Object keys = Object::object();
    for (const RecipeKey& key : KeysOf(outcome.problem, outcome.best->candidate)) {
      keys[key.path] = Object::parse(key.json, nullptr, false);
    }
    best["keys"] = std::move(keys);
  }
  return {{"ranks", outcome.problem.ranks}, {"global_batch", outcome.problem.global_batch},
          {"ended", outcome.reason},        {"duration_s", outcome.elapsed_s},
          {"best", std::move(best)},        {"output", output.empty() ? Object() : Object(output)},
          {"dropped", outcome.dropped},     {"untried", outcome.untried},
          {"trials", std::move(trials)}};
}

std::string NothingFoundText(const TuneOutcome& outcome) {
  std::string text = "no configuration was measured: " + outcome.reason;
  if (!outcome.rows.empty()) {
    const TuneRow& row = outcome.rows.back();
    text += "; the last one, " + CandidateText(outcome.problem, row.candidate) + ", " +
            FallOutText(row);
  }
  return text;
}

}  // namespace dslaunch
