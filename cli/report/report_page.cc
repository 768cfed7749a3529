#include "cli/report/report_page.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "base/count.h"
#include "cli/report/report_document.h"
#include "cli/report/report_info.h"
#include "cli/report/report_sections.h"
#include "cli/report/report_text.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxNamedNodes = 6;
// Least slowdown relative to the median rank that is mentioned.
constexpr double kNotableSlower = 0.01;

// A number that the page shows in large letters.
struct Tile {
  std::string label;
  std::string value;
  std::string note;
};

std::string DurationText(const ReportData& data) {
  if (data.started_unix_ms == 0) return "?";
  const int64_t end = data.ended_unix_ms != 0 ? data.ended_unix_ms : data.made_unix_ms;
  return ShortSeconds(static_cast<double>(std::max<int64_t>(end - data.started_unix_ms, 0)) / 1000);
}

// Returns the last value of a number that rank 0 reported.
double LastOf(const std::vector<MetricsPoint>& windows, double MetricsPoint::*number) {
  for (auto window = windows.rbegin(); window != windows.rend(); ++window) {
    if (!std::isnan((*window).*number)) return (*window).*number;
  }
  return kNotRecorded;
}

std::string SlowerText(double slower) { return "+" + Percent(slower); }

Tile RanksTile(const ReportData& data) {
  const JobEvents::Start* last = data.events.starts.empty() ? nullptr : &data.events.starts.back();
  const ReportedRun* run = RunOf(data);
  const double ranks = last != nullptr  ? static_cast<double>(last->world_size)
                       : run != nullptr ? run->world_size
                                        : kNotRecorded;
  const std::vector<std::string>& nodes =
      last != nullptr && !last->nodes.empty() ? last->nodes : data.nodes;
  std::string note =
      "on " + Count(nodes.size(), "node") + ": " + NameList(nodes, ", ", kMaxNamedNodes);
  // Process scheduling explains smaller differences, so they are not mentioned.
  if (const std::optional<JobPace> pace = PaceOf(data);
      pace && pace->ranks.size() > 1 && pace->ranks.front().slower >= kNotableSlower &&
      pace->ranks.front().own_s >= kLeastStragglerS) {
    const RankPace& slowest = pace->ranks.front();
    note +=
        "; the slowest is rank " + std::to_string(slowest.rank) + ", " + SlowerText(slowest.slower);
  }
  return {"Ranks", ShortNumber(ranks), note};
}

Tile ModelTile(const ReportedRun& run) {
  std::string note;
  if (!std::isnan(run.parameters)) note = ShortNumber(run.parameters) + " parameters";
  if (!run.dtype.empty()) note += (note.empty() ? "" : ", ") + run.dtype;
  if (!std::isnan(run.zero_stage))
    note += (note.empty() ? "" : ", ") + ("ZeRO stage " + ShortNumber(run.zero_stage));
  if (!std::isnan(run.flops_per_step))
    note += (note.empty() ? "" : ", ") + (ShortNumber(run.flops_per_step) + " FLOPs a step");
  return {"Model", run.model.empty() ? "?" : run.model, note};
}

// Returns how the model is trained, such as "batch 256 = 64 x 1 x 4, Adam, lr 0.002; data
// /data/fashion-mnist".
std::string TrainingText(const ReportedRun& run) {
  std::string text;
  const auto add = [&](const std::string& part, const char* joint) {
    text += (text.empty() ? "" : joint) + part;
  };
  if (run.batch > 0) {
    std::string batch = "batch " + ShortNumber(run.batch);
    if (run.micro_batch > 0 && run.accumulation_steps > 0) {
      batch += " = " + ShortNumber(run.micro_batch) + " x " + ShortNumber(run.accumulation_steps) +
               " x " + ShortNumber(run.batch / run.micro_batch / run.accumulation_steps);
    }
    add(batch, ", ");
  }
  if (!run.optimizer.empty()) add(run.optimizer, ", ");
  if (!std::isnan(run.lr)) add("lr " + ShortNumber(run.lr), ", ");
  if (!run.data.empty()) add("data " + run.data, "; ");
  if (!text.empty()) text.front() = static_cast<char>(std::toupper(text.front()));
  return text;
}

// Returns a tile with the results of the last evaluation; nullopt if there is none.
std::optional<Tile> EvaluationTile(const ReportData& data) {
  const std::vector<EvalPoint> evaluations = EvaluationsOf(data);
  if (evaluations.empty()) return std::nullopt;
  const EvalPoint& last = evaluations.back();
  const std::string step = "at step " + std::to_string(last.step);
  const std::string loss = "loss " + ShortNumber(last.loss) + ", " + step;
  if (!std::isnan(last.accuracy)) return Tile{"Accuracy", AccuracyText(last.accuracy), loss};
  if (!std::isnan(last.perplexity)) return Tile{"Perplexity", ShortNumber(last.perplexity), loss};
  return Tile{"Evaluation loss", ShortNumber(last.loss), step};
}

std::vector<Tile> TilesOf(const ReportData& data) {
  std::vector<Tile> tiles;
  if (const ReportedRun* run = RunOf(data)) tiles.push_back(ModelTile(*run));
  tiles.push_back(RanksTile(data));
  const size_t restarts = data.events.restarts.size();
  std::string note = data.ended ? "" : "until " + TimeText(data.made_unix_ms);
  if (restarts > 0) note += (note.empty() ? "with " : ", with ") + Count(restarts, "restart");
  tiles.push_back({"Duration", DurationText(data), note});
  if (data.copied_step >= 0) {
    const auto age_s = static_cast<double>(data.made_unix_ms - data.copied_unix_ms) / 1000;
    tiles.push_back({"Copy in memory", "step " + std::to_string(data.copied_step),
                     ShortSeconds(std::max(age_s, 0.0)) + " before this report"});
  }
  if (const std::optional<Tile> evaluation = EvaluationTile(data)) tiles.push_back(*evaluation);
  const std::vector<MetricsPoint> windows = WindowsOf(data);
  if (!windows.empty()) {
    const double loss = LastOf(windows, &MetricsPoint::loss);
    const std::string step = "at step " + std::to_string(windows.back().step);
    if (!std::isnan(loss)) tiles.push_back({"Last loss", ShortNumber(loss), step});
    const double tokens = MedianOf(windows, &MetricsPoint::tokens_per_s);
    const double samples = MedianOf(windows, &MetricsPoint::samples_per_s);
    const double mfu = MedianOf(windows, &MetricsPoint::mfu);
    const std::string share =
        std::isnan(mfu) ? "" : "; MFU " + Percent(mfu) + " of the hardware's peak";
    if (tokens > 0)
      tiles.push_back({"Throughput", ShortNumber(tokens), "tokens/s, median" + share});
    else if (samples > 0)
      tiles.push_back({"Throughput", ShortNumber(samples), "samples/s, median" + share});
  }
  if (const std::optional<CommunicationInfo> info = CommunicationOf(data);
      info && info->total_s > 0) {
    tiles.push_back({"Communication hidden", Percent(info->HiddenShare()),
                     "of " + ShortSeconds(info->total_s) + " in each step"});
  }
  if (const MemoryInfo memory = MemoryOf(data); !std::isnan(memory.peak_rss))
    tiles.push_back({"Peak memory", ShortBytes(memory.peak_rss), "of a process"});
  return tiles;
}

void AddHeader(const ReportData& data, Json& document) {
  const ReportedRun* const run = RunOf(data);
  const bool has_model = run != nullptr && !run->model.empty();
  const std::string job = "Job " + data.job_id;
  document["heading"] = has_model ? run->model : job;
  document["job_id"] = data.job_id;
  document["state"] = {{"text", data.state},
                       {"look", !data.ended           ? "busy"
                                : data.exit_code == 0 ? "good"
                                                      : "bad"}};
  document["about"] =
      Json::array({(has_model ? job + ", started " : "Started ") + TimeText(data.started_unix_ms)});
  if (const std::string trained = run == nullptr ? "" : TrainingText(*run); !trained.empty())
    document["about"].push_back(trained);
  document["command"] = data.command;
  const std::string& cause = data.events.cause.empty() ? data.detail : data.events.cause;
  if (cause.empty()) return;
  document["cause"] = {{"failed", data.ended && data.exit_code != 0},
                       {"text", cause},
                       {"evidence", data.events.evidence}};
}

std::vector<std::string> TroublesOf(const ReportData& data) {
  std::vector<std::string> troubles = data.troubles;
  size_t bad_lines = 0;
  for (const RankFiles& files : data.ranks)
    bad_lines += files.metrics ? files.metrics->bad_lines : 0;
  if (bad_lines > 0) {
    troubles.push_back(Count(bad_lines, "line") +
                       " of the ranks' metrics could not be understood and were left out.");
  }
  if (data.events.bad_lines > 0) {
    troubles.push_back(Count(data.events.bad_lines, "line") +
                       " of events.jsonl could not be understood and were left out.");
  }
  return troubles;
}

Json DocumentOf(const ReportData& data) {
  Json document;
  AddHeader(data, document);
  for (const Tile& tile : TilesOf(data)) {
    document["tiles"].push_back(
        {{"label", tile.label}, {"value", tile.value}, {"note", tile.note}});
  }
  if (const std::vector<std::string> troubles = TroublesOf(data); !troubles.empty())
    document["left_out"] = troubles;
  for (const auto section :
       {HangsSection, LossSection, AccuracySection, OtherResultsSection, LearningRateSection,
        GradientNormSection, LossScaleSection, ThroughputSection, MfuSection, StepTimeSection,
        OperatorsSection, CommunicationSection, MemorySection, GoodputSection, PreflightSection,
        StartsSection, TracesSection})
    AddTo(document, section(data));
  document["footer"] =
      Json::array({"Made by ", Code("dslaunch report"), ", " + TimeText(data.made_unix_ms) + "."});
  return document;
}

}  // namespace

std::string ReportPage(const ReportData& data) {
  return PageOf("dslaunch report: " + data.job_id, DocumentOf(data));
}

}  // namespace dslaunch
