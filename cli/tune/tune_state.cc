#include "cli/tune/tune_state.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/digest/sha256.h"
#include "base/text/hex.h"
#include "base/text/sanitize.h"
#include "cli/tune/trial_output.h"

namespace dslaunch {
namespace {

using Json = nlohmann::json;

constexpr std::pair<TrialEnd, const char*> kEnds[] = {{TrialEnd::kMeasured, "measured"},
                                                      {TrialEnd::kDoesNotFit, "does_not_fit"},
                                                      {TrialEnd::kOutOfMemory, "out_of_memory"},
                                                      {TrialEnd::kTimedOut, "timed_out"},
                                                      {TrialEnd::kFailed, "failed"}};
constexpr size_t kMostRows = kMaxCandidates;
// Largest value of an axis that a state file may have.
constexpr int64_t kMostValue = int64_t{1} << 31;

const char* EndName(TrialEnd end) {
  for (const auto& [value, name] : kEnds) {
    if (value == end) return name;
  }
  return "";
}

std::optional<TrialEnd> EndOf(const Json& name) {
  for (const auto& [value, text] : kEnds) {
    if (name == text) return value;
  }
  return std::nullopt;
}

std::optional<int64_t> WholeAt(const Json& object, const char* key) {
  constexpr int64_t kMost = int64_t{1} << 60;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  const auto value = found->get<int64_t>();
  return value < 0 || value > kMost ? std::nullopt : std::optional(value);
}

std::optional<TuneRow> ReadRow(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  TuneRow row;
  for (size_t axis = 0; axis < kAxisCount; ++axis) {
    const std::optional<int64_t> value = WholeAt(json, NameOf(static_cast<Axis>(axis)));
    if (!value || *value < Candidate().values[axis] || *value > kMostValue) return std::nullopt;
    row.candidate.values[axis] = *value;
  }
  const std::optional<TrialEnd> end = EndOf(json.value("end", Json()));
  if (!end) return std::nullopt;
  row.end = *end;
  const Json steps = json.value("steps_s", Json());
  if (!steps.is_array() || steps.size() > 2 * kMaxTrialSteps) return std::nullopt;
  for (const Json& step : steps) {
    const std::optional<double> seconds = SecondsOf(step);
    if (!seconds) return std::nullopt;
    row.steps_s.push_back(*seconds);
  }
  if ((row.end == TrialEnd::kMeasured) && row.steps_s.empty()) return std::nullopt;
  row.predicted_s = SecondsOf(json.value("predicted_s", Json()));
  for (const auto& [key, member] :
       {std::pair("trials", &TuneRow::trials), std::pair("needs_bytes", &TuneRow::needs_bytes),
        std::pair("has_bytes", &TuneRow::has_bytes),
        std::pair("peak_bytes", &TuneRow::peak_bytes)}) {
    const std::optional<int64_t> value = WholeAt(json, key);
    if (!value) return std::nullopt;
    row.*member = *value;
  }
  const Json cause = json.value("cause", Json());
  if (cause.is_string()) row.cause = Truncate(cause.get<std::string>());
  return row;
}

}  // namespace

nlohmann::ordered_json RowJson(const TuneProblem& problem, const TuneRow& row) {
  nlohmann::ordered_json json;
  for (size_t axis = 0; axis < kAxisCount; ++axis) {
    json[NameOf(static_cast<Axis>(axis))] = row.candidate.values[axis];
  }
  json["accumulation_steps"] = AccumulationOf(problem, row.candidate);
  json["end"] = EndName(row.end);
  json["predicted_s"] = row.predicted_s ? Json(*row.predicted_s) : Json();
  const bool measured = row.end == TrialEnd::kMeasured;
  json["step_s"] = measured ? Json(StepSeconds(row)) : Json();
  json["steps_s"] = row.steps_s;
  json["trials"] = row.trials;
  json["needs_bytes"] = row.needs_bytes;
  json["has_bytes"] = row.has_bytes;
  json["peak_bytes"] = row.peak_bytes;
  json["cause"] = row.cause;
  return json;
}

std::string TuneKey(const std::string& recipe_json, const std::vector<std::string>& place) {
  std::string text = recipe_json;
  for (const std::string& word : place) text += '\0' + word;
  return ToHex(Sha256Of(text));
}

std::string StateText(const TuneProblem& problem, const std::string& key,
                      const std::vector<TuneRow>& rows) {
  nlohmann::ordered_json trials = nlohmann::ordered_json::array();
  for (const TuneRow& row : rows) trials.push_back(RowJson(problem, row));
  const nlohmann::ordered_json state = {{"search", key}, {"trials", std::move(trials)}};
  return state.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::vector<TuneRow>> ReadState(const std::string& text, const std::string& key,
                                       const std::string& path) {
  const auto fail = [&](const std::string& what) {
    return Error{ExitCode::kBadInput, Truncate(path) + ": " + what};
  };
  const std::string malformed = "is no state of dslaunch tune; remove it, or give another --output";
  const Json state = Json::parse(text, nullptr, false);
  if (!state.is_object()) return fail(malformed);
  const Json search = state.value("search", Json());
  const Json trials = state.value("trials", Json());
  if (!search.is_string() || !trials.is_array() || trials.size() > kMostRows) {
    return fail(malformed);
  }
  if (search != key) {
    return fail(
        "is the state of a search with another recipe, other nodes or other options; remove it to "
        "begin anew, or give another --output");
  }
  std::vector<TuneRow> rows;
  for (const Json& trial : trials) {
    std::optional<TuneRow> row = ReadRow(trial);
    if (!row) return fail(malformed);
    rows.push_back(*std::move(row));
  }
  return rows;
}

}  // namespace dslaunch
