#include "cli/report/report_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/text/sanitize.h"
#include "proto/contract/goodput.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxLineBytes = 1 << 20;
constexpr size_t kMaxNames = 64;  // limit of categories, kinds, and nodes of a start
constexpr size_t kMaxOperators = 20'000;
constexpr size_t kMaxStarts = 1000;
constexpr size_t kMaxHangs = 20;
constexpr size_t kMaxPreflightNodes = 4096;
constexpr double kMaxNumber = 1e30;
constexpr double kMaxWhole = 9e15;  // largest range in which doubles represent all whole numbers

// Returns `text` with null in place of each NaN and Infinity outside of strings.
std::string WithoutNan(std::string_view text) {
  std::string out;
  bool in_string = false;
  while (!text.empty()) {
    size_t size = 1;
    const auto is_here = [&](std::string_view word) { return text.starts_with(word); };
    if (in_string && text.front() == '\\') {
      size = std::min<size_t>(2, text.size());
    } else if (text.front() == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      for (const std::string_view word : {"NaN", "-Infinity", "Infinity"}) {
        if (!is_here(word)) continue;
        out += "null";
        text.remove_prefix(word.size());
        size = 0;
        break;
      }
    }
    out += text.substr(0, size);
    text.remove_prefix(size);
  }
  return out;
}

// Returns the JSON object in `text`, or null if `text` is not a JSON object.
Json ParseObject(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) json = Json::parse(WithoutNan(text), nullptr, false);
  return json.is_object() ? json : Json();
}

const Json& At(const Json& json, const char* key) {
  static const Json none;
  if (!json.is_object()) return none;
  const auto found = json.find(key);
  return found == json.end() ? none : *found;
}

// Returns the number for the report. Drops numbers that would overflow in sums, and rounds tiny
// numbers to 0.
double Kept(double number) {
  if (!(std::abs(number) <= kMaxNumber)) return kNotRecorded;
  return std::abs(number) < 1 / kMaxNumber ? 0 : number;
}

double Number(const Json& json, const char* key) {
  const Json& value = At(json, key);
  if (!value.is_number()) return kNotRecorded;
  return Kept(value.get<double>());
}

// Reads a time, size or count. Returns kNotRecorded for a negative number.
double Amount(const Json& json, const char* key) {
  const double number = Number(json, key);
  return number >= 0 ? number : kNotRecorded;
}

double AmountOr0(const Json& json, const char* key) {
  const double number = Amount(json, key);
  return std::isnan(number) ? 0 : number;
}

int64_t Whole(const Json& json, const char* key) {
  return static_cast<int64_t>(std::min(AmountOr0(json, key), kMaxWhole));
}

std::string Shown(std::string_view text) {
  std::string line = Truncate(text, kMaxReportNameBytes);
  std::ranges::replace(line, '\t', ' ');
  return line;
}

std::string Text(const Json& json, const char* key) {
  const Json& value = At(json, key);
  return value.is_string() ? Shown(value.get_ref<const std::string&>()) : "";
}

NamedNumbers Numbers(const Json& json) {
  NamedNumbers numbers;
  if (!json.is_object()) return numbers;
  for (const auto& [name, value] : json.items()) {
    if (numbers.size() == kMaxNames) break;
    const double number = value.is_number() ? Kept(value.get<double>()) : kNotRecorded;
    if (number >= 0) numbers.emplace_back(Shown(name), number);
  }
  return numbers;
}

// Returns the values of an evaluation other than the usual ones. The returned values may be
// negative.
NamedNumbers OtherResults(const Json& eval) {
  constexpr std::array<std::string_view, 6> kUsual = {"loss",    "accuracy", "perplexity",
                                                      "correct", "samples",  "tokens"};
  NamedNumbers others;
  for (const auto& [name, value] : eval.items()) {
    if (others.size() == kMaxNames) break;
    const double number = value.is_number() ? Kept(value.get<double>()) : kNotRecorded;
    if (!std::isnan(number) && std::ranges::find(kUsual, name) == kUsual.end())
      others.emplace_back(Shown(name), number);
  }
  return others;
}

void MergeMaxima(const NamedNumbers& numbers, NamedNumbers& most) {
  for (const auto& [name, number] : numbers) {
    const auto found = std::ranges::find(most, name, &NamedNumbers::value_type::first);
    if (found != most.end())
      found->second = std::max(found->second, number);
    else if (most.size() < kMaxNames)
      most.emplace_back(name, number);
  }
}

MetricsPoint ToPoint(const Json& json) {
  MetricsPoint point;
  point.step = Whole(json, "step");
  point.step_s = Amount(json, "step_s");
  point.compute_s = Amount(json, "compute_s");
  point.data_epoch = Amount(json, "epoch");
  point.loss = Number(json, "loss");
  point.loss_is_bad = json.contains("loss") && std::isnan(point.loss);
  point.lr = Number(json, "lr");
  point.grad_norm = Amount(json, "grad_norm");
  point.loss_scale = Amount(json, "loss_scale");
  const Json& skipped = At(json, "skipped");
  point.skipped = skipped.is_boolean() ? skipped.get<bool>() : AmountOr0(json, "skipped") > 0;
  point.samples_per_s = Amount(json, "samples_per_s");
  point.tokens_per_s = Amount(json, "tokens_per_s");
  point.mfu = Amount(json, "mfu");
  return point;
}

// Calls `take` with each complete line that is a JSON object. Returns the number of lines that are
// not.
size_t ForEachObject(std::string_view text, const std::function<void(const Json&)>& take) {
  size_t bad = 0;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.empty()) continue;
    const Json json = line.size() <= kMaxLineBytes ? ParseObject(line) : Json();
    if (json.is_object())
      take(json);
    else
      ++bad;
  }
  return bad;
}

std::vector<std::string> Texts(const Json& json) {
  std::vector<std::string> texts;
  if (!json.is_array()) return texts;
  for (const Json& text : json) {
    if (texts.size() == kMaxNames) break;
    if (text.is_string()) texts.push_back(Shown(text.get_ref<const std::string&>()));
  }
  return texts;
}

// Adds `one` unless its attempt is already in `all`, because every node reports the same starts and
// restarts.
template <class T>
void KeepFirst(T one, std::vector<T>& all) {
  if (all.size() == kMaxStarts) return;
  const auto place = std::ranges::lower_bound(all, one.attempt, {}, &T::attempt);
  if (place == all.end() || place->attempt != one.attempt) all.insert(place, std::move(one));
}

// Returns the value of each figure in `figures`. Only figures of devices have several values. Their
// lowest value is kept, because a higher value is better.
std::vector<ReportedPreflight::Value> PreflightValues(const Json& figures) {
  std::vector<ReportedPreflight::Value> values;
  std::vector<double> numbers;
  if (!figures.is_array()) return values;
  for (const Json& figure : figures) {
    const ReportedPreflight::Value value = {Text(figure, "figure"), Text(figure, "text")};
    const double number = AmountOr0(figure, "value");
    const auto known = std::ranges::find(values, value.figure, &ReportedPreflight::Value::figure);
    const auto index = static_cast<size_t>(known - values.begin());
    if (known == values.end() && values.size() < kMaxNames) {
      values.push_back(value);
      numbers.push_back(number);
    } else if (known != values.end() && number < numbers[index]) {
      *known = value;
      numbers[index] = number;
    }
  }
  return values;
}

// Adds a finding that is not "ok" to its node.
void AddPreflightFinding(const Json& finding, ReportedPreflight& preflight) {
  const auto node =
      std::ranges::find(preflight.nodes, Text(finding, "node"), &ReportedPreflight::Node::name);
  if (Text(finding, "level") == "ok" || node == preflight.nodes.end()) return;
  const std::string check = Text(finding, "check");
  for (ReportedPreflight::Value& value : node->values) value.slow |= value.figure == check;
  if (node->findings.size() < kMaxNames)
    node->findings.push_back(check + ": " + Text(finding, "seen"));
}

// Adds a message about a hang, which is recognized by its last line, the command that shows all
// stacks.
void AddHang(const Json& json, double t, JobEvents& events) {
  const Json& message = At(json, "message");
  constexpr std::string_view kLastLine = "\n  all stacks: dslaunch stacks ";
  if (!message.is_string() || events.hangs.size() == kMaxHangs) return;
  std::string_view rest = message.get_ref<const std::string&>();
  if (rest.find(kLastLine) == std::string_view::npos) return;
  JobEvents::Hang& hang = events.hangs.emplace_back(JobEvents::Hang{t, ""});
  while (!rest.empty()) {
    const size_t end = std::min(rest.size(), rest.find('\n'));
    hang.text += (hang.text.empty() ? "" : "\n") + SanitizeForTerminal(rest.substr(0, end));
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
}

void AddEvent(const Json& json, JobEvents& events) {
  const std::string event = Text(json, "event");
  const double t = AmountOr0(json, "t");
  const auto attempt = static_cast<uint64_t>(Whole(json, "attempt"));
  if (event == "started") {
    KeepFirst(JobEvents::Start{t, attempt, Whole(json, "world_size"), Texts(At(json, "nodes"))},
              events.starts);
  } else if (event == "restarting") {
    KeepFirst(
        JobEvents::Restart{attempt, Text(At(json, "cause"), "message"), Text(json, "reason"), t},
        events.restarts);
  } else if (event == "notice") {
    AddHang(json, t, events);
  } else if (event == "end") {
    events.cause = Text(At(json, "cause"), "message");
    events.evidence = Text(At(json, "cause"), "evidence");
    const Json& goodput = At(json, "goodput");
    if (!goodput.is_object()) return;
    ReportedGoodput& reported = events.goodput.emplace();
    reported.wall_s = AmountOr0(goodput, "wall_s");
    reported.ranks = AmountOr0(goodput, "ranks");
    for (const char* name : kGoodputNames)
      reported.seconds.emplace_back(name, AmountOr0(At(goodput, "seconds"), name));
  }
}

}  // namespace

RankMetrics ReadMetrics(std::string_view text) {
  RankMetrics metrics;
  metrics.bad_lines = ForEachObject(text, [&](const Json& json) {
    if (const Json& eval = At(json, "eval"); eval.is_object()) {
      metrics.evals.push_back({.step = Whole(json, "step"),
                               .loss = Number(eval, "loss"),
                               .accuracy = Amount(eval, "accuracy"),
                               .perplexity = Amount(eval, "perplexity"),
                               .others = OtherResults(eval)});
      return;
    }
    const MetricsPoint point = ToPoint(json);
    if (point.step > 0) metrics.points.push_back(point);
    MergeMaxima(Numbers(At(json, "memory")), metrics.memory);
  });
  return metrics;
}

std::optional<ReportedRun> ReadRunInfo(std::string_view text) {
  const Json json = ParseObject(text);
  if (!json.is_object()) return std::nullopt;
  ReportedRun info;
  info.model = Text(json, "model");
  info.dtype = Text(json, "dtype");
  info.parameters = Amount(json, "parameters");
  info.world_size = Amount(json, "world_size");
  info.zero_stage = Amount(json, "zero_stage");
  info.flops_per_step = Amount(json, "flops_per_step");
  info.batch = Amount(json, "batch");
  info.micro_batch = Amount(json, "micro_batch");
  info.accumulation_steps = Amount(json, "accumulation_steps");
  info.lr = Amount(json, "lr");
  info.optimizer = Text(json, "optimizer");
  info.data = Text(json, "data");
  info.memory_plan = Numbers(At(json, "memory_plan"));
  return info;
}

std::optional<RankProfile> ReadRankProfile(std::string_view text) {
  const Json json = ParseObject(text);
  if (!json.is_object()) return std::nullopt;
  RankProfile profile;
  profile.steps = std::max(1.0, AmountOr0(json, "steps"));
  profile.wall_s = Amount(json, "wall_s");
  if (const Json& operators = At(json, "operators"); operators.is_array()) {
    for (const Json& one : operators) {
      if (profile.operators.size() == kMaxOperators) break;
      if (!one.is_object()) continue;
      profile.operators.push_back({Text(one, "name"), AmountOr0(one, "calls"),
                                   AmountOr0(one, "self_s"), Number(one, "self_bytes")});
    }
  }
  const Json& communication = At(json, "communication");
  profile.communication_s = Amount(communication, "total_s");
  profile.hidden_s = Amount(communication, "hidden_s");
  if (const Json& kinds = At(communication, "kinds"); kinds.is_array()) {
    for (const Json& one : kinds) {
      if (profile.kinds.size() == kMaxNames) break;
      if (!one.is_object()) continue;
      profile.kinds.push_back({Text(one, "name"), AmountOr0(one, "calls"), AmountOr0(one, "bytes"),
                               AmountOr0(one, "s")});
    }
  }
  return profile;
}

std::optional<ReportedPreflight> ReadPreflight(std::string_view text) {
  const Json json = ParseObject(text);
  if (!json.is_object()) return std::nullopt;
  ReportedPreflight preflight;
  preflight.took_s = Amount(json, "bench_ms") / 1000;
  if (const Json& nodes = At(json, "nodes"); nodes.is_array()) {
    for (const Json& node : nodes) {
      if (preflight.nodes.size() == kMaxPreflightNodes) break;
      preflight.nodes.push_back({Text(node, "node"), PreflightValues(At(node, "figures")), {}});
    }
  }
  if (const Json& findings = At(json, "findings"); findings.is_array()) {
    for (const Json& finding : findings) AddPreflightFinding(finding, preflight);
  }
  return preflight;
}

JobEvents ReadJobEvents(std::string_view text) {
  JobEvents events;
  events.bad_lines = ForEachObject(text, [&](const Json& json) { AddEvent(json, events); });
  return events;
}

}  // namespace dslaunch
