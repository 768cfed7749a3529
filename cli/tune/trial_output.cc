#include "cli/tune/trial_output.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/exit_code.h"
#include "base/text/sanitize.h"
#include "base/text/split_lines.h"

namespace dslaunch {
namespace {

using Json = nlohmann::json;

// Returns the object that begins with {"KEY": in a line, which may have a tag in front; null if the
// line contains no such object.
Json ObjectIn(std::string_view line, const std::string& key) {
  const size_t at = line.find("{\"" + key + "\":");
  if (at == std::string_view::npos) return {};
  const Json object = Json::parse(line.substr(at), nullptr, false);
  return object.is_object() && object[key].is_object() ? object[key] : Json();
}

// Returns the closing block, which is the last line of stdout; null if there is none.
Json ClosingBlock(const std::string& out) {
  Json last;
  for (const std::string_view line : SplitLines(out)) {
    if (!line.starts_with("{\"job\":")) continue;
    const Json object = Json::parse(line, nullptr, false);
    if (object.is_object()) last = object;
  }
  return last;
}

std::string TextAt(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t BytesAt(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer()
             ? std::max<int64_t>(found->get<int64_t>(), 0)
             : 0;
}

// Returns the last line that dslaunch itself wrote about an error.
std::string LastError(const std::string& err) {
  constexpr std::string_view kTag = "dslaunch: ";
  std::string last;
  for (const std::string_view line : SplitLines(err)) {
    if (line.starts_with(kTag)) last = line.substr(kTag.size());
  }
  return last;
}

bool TellsOutOfMemory(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text.find("out of memory") != std::string::npos ||
         text.find("not enough memory") != std::string::npos;
}

struct Failure {
  std::string cause;
  bool out_of_memory = false;
};

Failure FailureOf(const JobRun& run) {
  const Json block = ClosingBlock(run.out);
  const Json cause = block.is_object() ? block.value("cause", Json()) : Json();
  Failure failure;
  if (cause.is_object()) {
    failure.cause = TextAt(cause, "evidence");
    if (failure.cause.empty()) failure.cause = TextAt(cause, "message");
    const auto killed = cause.find("out_of_memory");
    failure.out_of_memory =
        TellsOutOfMemory(failure.cause) || (killed != cause.end() && *killed == true);
  } else {
    failure.cause = LastError(run.err);
  }
  if (failure.cause.empty()) {
    failure.cause = "the job ended with exit code " + std::to_string(run.exit_code);
  }
  failure.cause = Truncate(failure.cause);
  return failure;
}

std::string LimitText(double limit_s) {
  char text[64];
  std::snprintf(text, sizeof text, "did not end within %.0f s", limit_s);
  return text;
}

// Returns the step times of a "trial" object; empty if the object is malformed.
std::vector<double> StepsOf(const Json& trial, int64_t global_batch) {
  const Json seconds = trial.value("step_s", Json());
  const Json samples = trial.value("samples", Json());
  if (!seconds.is_array() || !samples.is_array() || seconds.size() != samples.size() ||
      seconds.size() > kMaxTrialSteps) {
    return {};
  }
  std::vector<double> whole, scaled;
  for (size_t i = kWarmUpSteps; i < seconds.size(); ++i) {
    const std::optional<double> step_s = SecondsOf(seconds[i]);
    if (!step_s || !samples[i].is_number_integer()) return {};
    const auto count = samples[i].get<int64_t>();
    if (count < 1) return {};
    if (count == global_batch) whole.push_back(*step_s);
    scaled.push_back(*step_s * static_cast<double>(global_batch) / static_cast<double>(count));
  }
  return whole.empty() ? scaled : whole;
}

}  // namespace

std::optional<double> SecondsOf(const nlohmann::json& value) {
  if (!value.is_number()) return std::nullopt;
  const auto seconds = value.get<double>();
  return std::isfinite(seconds) && seconds > 0 ? std::optional(seconds) : std::nullopt;
}

PlanResult ReadPlan(const JobRun& run) {
  PlanResult result;
  result.exit_code = run.exit_code;
  if (run.timed_out) {
    result.failure = "the plan of its memory " + LimitText(run.limit_s);
    return result;
  }
  bool found = false;
  for (const std::string_view line : SplitLines(run.out)) {
    const Json plan = ObjectIn(line, "plan");
    if (!plan.is_object()) continue;
    found = true;
    if (BytesAt(plan, "needs") < result.needs_bytes) continue;
    result.needs_bytes = BytesAt(plan, "needs");
    result.has_bytes = BytesAt(plan, "has");
    result.passes_bytes = std::min(BytesAt(plan, "passes"), result.needs_bytes);
    result.on_gpu = plan.value("on_gpu", Json()) == true;
  }
  if (run.exit_code != 0 || !found) result.failure = FailureOf(run).cause;
  return result;
}

TrialResult ReadTrial(const JobRun& run, int64_t global_batch) {
  TrialResult result;
  result.wall_s = run.wall_s;
  if (run.timed_out) {
    result.end = TrialEnd::kTimedOut;
    result.cause = LimitText(run.limit_s);
    return result;
  }
  for (const std::string_view line : SplitLines(run.out)) {
    const Json trial = ObjectIn(line, "trial");
    if (!trial.is_object()) continue;
    result.steps_s = StepsOf(trial, global_batch);
    result.peak_bytes = BytesAt(trial, "peak_bytes");
  }
  if (run.exit_code == 0 && !result.steps_s.empty()) return result;
  result.steps_s.clear();
  result.end = TrialEnd::kFailed;
  if (run.exit_code == 0) {
    result.cause = "its steps were not reported";
    return result;
  }
  const Failure failure = FailureOf(run);
  if (failure.out_of_memory) result.end = TrialEnd::kOutOfMemory;
  result.cause = failure.cause;
  return result;
}

}  // namespace dslaunch
