#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/count.h"
#include "cli/report/report_info.h"
#include "cli/report/report_sections.h"
#include "cli/report/report_text.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxOperatorRows = 20;
// Operators with a smaller fraction of the time are not listed.
constexpr double kSmallShare = 0.001;
constexpr size_t kMaxTraceRows = 16;
constexpr size_t kMaxPreflightRows = 64;

constexpr char kNoProfile[] =
    "No rank was profiled; dslaunch train --profile records a few steps of each.";

// Returns the colour of a bucket: green for new steps, red for a hang, grey for the end, and other
// colours for the rest. Buckets of the same kind share a colour.
const char* ColorOfBucket(std::string_view name) {
  static constexpr std::pair<std::string_view, const char*> kColors[] = {
      {"connect", "c5"},    {"rendezvous", "c5"}, {"start", "c4"},
      {"first_step", "c7"}, {"productive", "c2"}, {"recomputed", "c1"},
      {"save", "c0"},       {"waiting", "c3"},    {"hang", "c6"}};
  for (const auto& [bucket, color] : kColors) {
    if (bucket == name) return color;
  }
  return "grey";
}

}  // namespace

Json OperatorsSection(const ReportData& data) {
  const std::string heading = "Time by operator";
  const std::vector<ReportedOperator> operators = OperatorsOf(data);
  if (operators.empty()) return Missing("operators", heading, kNoProfile);
  double all_s = 0;
  for (const ReportedOperator& row : operators) all_s += row.self_s;
  const double most = std::max(operators.front().self_s, 1e-9);
  std::vector<Json> rows;
  size_t shown = 0;
  double shown_s = 0;
  for (const ReportedOperator& row : operators) {
    if (shown == kMaxOperatorRows || (row.share < kSmallShare && shown > 0)) break;
    ++shown;
    shown_s += row.self_s;
    rows.push_back({Code(row.name), ShortNumber(row.calls), ShortSeconds(row.self_s),
                    Percent(row.share),
                    std::isnan(row.self_bytes) ? ""
                    : row.self_bytes < 0       ? "frees " + ShortBytes(-row.self_bytes)
                                               : ShortBytes(row.self_bytes),
                    BarsCell({{{row.self_s / most, "c0"}}})});
  }
  return Card(
      "operators", heading,
      "Self time, without what an operator calls; in one step, mean of the profiled ranks. All "
      "operators together: " +
          ShortSeconds(all_s) + ".",
      {TablePart({"Operator", " Calls", " Self time", " Share", " Allocates", ""}, std::move(rows),
                 MoreText(operators.size(), shown, "operator",
                          ShortSeconds(std::max(all_s - shown_s, 0.0))))},
      Width::kWhole);
}

Json CommunicationSection(const ReportData& data) {
  const std::string heading = "Communication";
  const std::optional<CommunicationInfo> info = CommunicationOf(data);
  if (!info) return Missing("communication", heading, kNoProfile);
  if (info->total_s == 0)
    return Missing("communication", heading, "The profiled ranks did not communicate.");
  std::string lead = "Ranks communicate for " + ShortSeconds(info->total_s);
  if (info->step_s > 0) lead += " of each step's " + ShortSeconds(info->step_s);
  lead += "; " + Percent(info->HiddenShare()) + " of it is hidden behind computation, and " +
          ShortSeconds(info->total_s - info->hidden_s) + " in each step is not.";
  double most = 0;
  for (const CommunicationInfo::Rank& rank : info->ranks) most = std::max(most, rank.total_s);
  std::vector<Json> ranks;
  for (size_t i = 0; i < std::min(info->ranks.size(), kMaxRankRows); ++i) {
    const CommunicationInfo::Rank& rank = info->ranks[i];
    const double shown = rank.total_s - rank.hidden_s;
    ranks.push_back({"rank " + std::to_string(rank.rank), ShortSeconds(rank.total_s),
                     ShortSeconds(rank.hidden_s),
                     rank.total_s > 0 ? Percent(rank.hidden_s / rank.total_s) : "",
                     BarsCell({{{rank.hidden_s / most, "c2"}, {shown / most, "c1"}}})});
  }
  std::vector<Json> kinds;
  for (size_t i = 0; i < std::min(info->kinds.size(), kMaxOperatorRows); ++i) {
    const RankProfile::Communication& kind = info->kinds[i];
    kinds.push_back({Code(kind.kind), ShortNumber(kind.calls), ShortBytes(kind.bytes),
                     ShortSeconds(kind.s),
                     kind.s > 0 && kind.bytes > 0 ? ShortBytes(kind.bytes / kind.s) + "/s" : "",
                     BarsCell({{{kind.s / info->total_s, "c0"}}})});
  }
  std::vector<Json> parts = {
      LegendPart({{"c2", "hidden behind computation"}, {"c1", "the rank waits for it"}}),
      TablePart({"Rank", " In each step", " Hidden", " Share", ""}, std::move(ranks),
                MoreText(info->ranks.size(), kMaxRankRows, "rank"))};
  if (!kinds.empty()) {
    parts.push_back(HeadingPart("By kind, in one step, mean of the profiled ranks"));
    parts.push_back(TablePart({"Kind", " Calls", " Volume", " Time", " Rate", ""}, std::move(kinds),
                              MoreText(info->kinds.size(), kMaxOperatorRows, "kind")));
  }
  return Card("communication", heading, lead, std::move(parts), Width::kWhole);
}

Json MemorySection(const ReportData& data) {
  const std::string heading = "Memory by category, predicted and measured";
  const MemoryInfo memory = MemoryOf(data);
  if (memory.rows.empty()) {
    return Missing(
        "memory", heading,
        "No rank recorded its memory. dslaunch train does in metrics.jsonl, activations too "
        "with \"memory_breakdown\": true in the engine's configuration; what is "
        "predicted comes from run.json.");
  }
  double most = 1, predicted = 0, measured = 0;
  for (const MemoryRow& row : memory.rows) {
    most = std::fmax(most, std::fmax(row.predicted, row.measured));
    predicted += std::isnan(row.predicted) ? 0 : row.predicted;
    measured += std::isnan(row.measured) ? 0 : row.measured;
  }
  const auto bytes = [](double number) { return std::isnan(number) ? "" : ShortBytes(number); };
  const auto against = [](double measured_bytes, double predicted_bytes) {
    if (!(predicted_bytes > 0) || std::isnan(measured_bytes)) return std::string();
    const double more = measured_bytes / predicted_bytes - 1;
    return SignedPercent(more);
  };
  const auto part = [&](double number) { return std::isnan(number) ? 0 : number / most; };
  std::vector<Json> rows;
  for (const MemoryRow& row : memory.rows) {
    rows.push_back({row.category, bytes(row.predicted), bytes(row.measured),
                    against(row.measured, row.predicted),
                    BarsCell({{{part(row.predicted), "grey"}}, {{part(row.measured), "c0"}}})});
  }
  rows.push_back({"all", bytes(predicted > 0 ? predicted : kNotRecorded),
                  bytes(measured > 0 ? measured : kNotRecorded),
                  against(measured > 0 ? measured : kNotRecorded, predicted), ""});
  std::string lead = "For each category, the maximum over the ranks.";
  if (std::ranges::any_of(memory.rows, [](const MemoryRow& row) {
        return row.category == "activations" && std::isnan(row.measured);
      }))
    lead +=
        " Activations are measured with \"memory_breakdown\": true in the engine's configuration.";
  if (predicted == 0) lead += " Nothing was predicted: no rank left a run.json with a memory_plan.";
  if (measured == 0) lead += " Nothing was measured: no rank recorded its memory in metrics.jsonl.";
  return Card("memory", heading, lead,
              {LegendPart({{"grey", "predicted"}, {"c0", "measured"}}),
               TablePart({"Category", " Predicted", " Measured", " Difference", ""},
                         std::move(rows), "", /*has_total=*/true)},
              Width::kWhole);
}

Json HangsSection(const ReportData& data) {
  std::vector<Json> parts;
  for (const JobEvents::Hang& hang : data.events.hangs) {
    parts.push_back(HeadingPart(TimeText(static_cast<int64_t>(hang.t * 1000))));
    parts.push_back(TextPart(hang.text));
  }
  if (parts.empty()) return nullptr;
  return Card("hangs", "Hangs", "", std::move(parts), Width::kWhole);
}

Json GoodputSection(const ReportData& data) {
  if (!data.events.goodput) {
    return Missing("goodput", "Goodput",
                   "The end of the job was not recorded here; dslaunch describe has it for a job "
                   "that runs or was detached.");
  }
  const ReportedGoodput& goodput = *data.events.goodput;
  double all = 0;
  for (const auto& [name, seconds] : goodput.seconds) all += seconds;
  if (!(all > 0)) return nullptr;
  ColoredParts bar;
  std::vector<Json> rows;
  double productive = 0;
  for (const auto& [name, seconds] : goodput.seconds) {
    if (name == "productive") productive = seconds / all;
    if (seconds <= 0) continue;
    const std::string color = ColorOfBucket(name);
    bar.emplace_back(seconds / all, color);
    std::string words = name;
    std::ranges::replace(words, '_', ' ');
    rows.push_back(
        {SwatchCell(color, words), ShortSeconds(seconds / goodput.ranks), Percent(seconds / all)});
  }
  const std::string lead = Percent(productive) + " of the time of " +
                           Count(static_cast<size_t>(goodput.ranks), "rank") +
                           " went into new steps.";
  return Card("goodput", "Goodput", lead,
              {BarPart(bar), TablePart({"What for", " Time of a rank", " Share"}, std::move(rows))},
              Width::kWhole);
}

Json PreflightSection(const ReportData& data) {
  if (!data.preflight || data.preflight->nodes.empty()) return nullptr;
  // List the nodes with findings first.
  std::vector<const ReportedPreflight::Node*> nodes;
  for (const bool found : {true, false}) {
    for (const ReportedPreflight::Node& node : data.preflight->nodes) {
      if (node.findings.empty() != found) nodes.push_back(&node);
    }
  }
  std::vector<std::string> columns = {"Node"};
  for (const ReportedPreflight::Node* node : nodes) {
    for (const ReportedPreflight::Value& value : node->values) {
      if (std::ranges::count(columns, " " + value.figure) == 0)
        columns.push_back(" " + value.figure);
    }
  }
  std::vector<Json> rows;
  for (size_t i = 0; i < std::min(nodes.size(), kMaxPreflightRows); ++i) {
    Json row = Json::array({nodes[i]->name});
    for (size_t column = 1; column < columns.size(); ++column) {
      const auto value = std::ranges::find(nodes[i]->values, columns[column].substr(1),
                                           &ReportedPreflight::Value::figure);
      const bool known = value != nodes[i]->values.end();
      row.push_back(!known ? Json("") : value->slow ? BadCell(value->text) : Json(value->text));
    }
    row.push_back(NameList(nodes[i]->findings, "; "));
    rows.push_back(std::move(row));
  }
  columns.push_back("Found");
  std::string lead = "What --preflight measured before the job.";
  if (!std::isnan(data.preflight->took_s))
    lead += " It took " + ShortSeconds(data.preflight->took_s) + ".";
  return Card(
      "preflight", "Preflight", lead,
      {TablePart(columns, std::move(rows), MoreText(nodes.size(), kMaxPreflightRows, "node"))},
      Width::kWhole);
}

Json StartsSection(const ReportData& data) {
  if (data.events.starts.size() < 2 && data.events.restarts.empty()) return nullptr;
  std::vector<Json> rows;
  for (const JobEvents::Start& start : data.events.starts) {
    const auto end =
        std::ranges::find(data.events.restarts, start.attempt, &JobEvents::Restart::attempt);
    std::string why;
    if (end != data.events.restarts.end()) {
      why = !end->cause.empty() ? end->cause : end->reason;
    } else if (start.attempt == data.events.starts.back().attempt) {
      why = data.state;
    }
    rows.push_back({std::to_string(start.attempt), TimeText(static_cast<int64_t>(start.t * 1000)),
                    std::to_string(start.world_size), NameList(start.nodes, ", "), why});
  }
  return Card("starts", "Starts and restarts", "",
              {TablePart({" Start", " When", " Ranks", "Nodes", "How it ended"}, std::move(rows))},
              Width::kWhole);
}

Json TracesSection(const ReportData& data) {
  std::vector<Json> rows;
  size_t traces = 0;
  for (const RankFiles& files : data.ranks) {
    if (files.trace_path.empty() || traces++ >= kMaxTraceRows) continue;
    const std::string node = files.node.empty() ? "" : " (" + files.node + ")";
    rows.push_back({"rank " + std::to_string(files.rank) + node, Code(files.trace_path),
                    ShortBytes(static_cast<double>(files.trace_bytes))});
  }
  if (traces == 0) return nullptr;
  return Card("traces", "Traces",
              Json::array({"Every operator and message of the profiled steps, for ",
                           Code("ui.perfetto.dev"), " or ", Code("chrome://tracing"), "."}),
              {TablePart({"Rank", "File on its node", " Size"}, std::move(rows),
                         MoreText(traces, kMaxTraceRows, "trace"))},
              Width::kWhole);
}

}  // namespace dslaunch
