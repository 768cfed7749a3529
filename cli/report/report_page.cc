#include "cli/report/report_page.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/count.h"
#include "cli/report/report_html.h"
#include "cli/report/report_info.h"
#include "cli/report/report_plot.h"
#include "cli/report/report_sections.h"
#include "cli/report/report_style.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxNamedNodes = 6;
constexpr double kNotableSlower = 0.01;  // than the median rank

struct Tile {
  std::string label;
  std::string value;
  std::string note;
};

std::string TilesHtml(const std::vector<Tile>& tiles) {
  std::string html = "<dl class=\"tiles wide\" id=\"summary\">";
  for (const Tile& tile : tiles) {
    html += "<div><dt>" + Escaped(tile.label) + "</dt><dd>" + Escaped(tile.value) +
            (tile.note.empty() ? "" : "<small>" + Escaped(tile.note) + "</small>") + "</dd></div>";
  }
  return html + "</dl>";
}

std::string DurationText(const ReportData& data) {
  if (data.started_unix_ms == 0) return "?";
  const int64_t end = data.ended_unix_ms != 0 ? data.ended_unix_ms : data.made_unix_ms;
  return ShortSeconds(static_cast<double>(std::max<int64_t>(end - data.started_unix_ms, 0)) / 1000);
}

// What rank 0 told last.
double LastOf(const std::vector<MetricsPoint>& windows, double MetricsPoint::*number) {
  for (auto window = windows.rbegin(); window != windows.rend(); ++window) {
    if (!std::isnan((*window).*number)) return (*window).*number;
  }
  return kNotRecorded;
}

Tile RanksTile(const ReportData& data) {
  const JobEvents::Start* last = data.events.starts.empty() ? nullptr : &data.events.starts.back();
  const RunInfo* run = RunOf(data);
  const double ranks = last != nullptr  ? static_cast<double>(last->world_size)
                       : run != nullptr ? run->world_size
                                        : kNotRecorded;
  const std::vector<std::string>& nodes =
      last != nullptr && !last->nodes.empty() ? last->nodes : data.nodes;
  return {"Ranks", ShortNumber(ranks),
          "on " + Count(nodes.size(), "node") + ": " + NameList(nodes, ", ", kMaxNamedNodes)};
}

Tile ModelTile(const RunInfo& run) {
  std::string note;
  if (!std::isnan(run.parameters)) note = ShortNumber(run.parameters) + " parameters";
  if (!run.dtype.empty()) note += (note.empty() ? "" : ", ") + run.dtype;
  if (!std::isnan(run.zero_stage))
    note += (note.empty() ? "" : ", ") + ("ZeRO stage " + ShortNumber(run.zero_stage));
  if (!std::isnan(run.flops_per_step))
    note += (note.empty() ? "" : ", ") + (ShortNumber(run.flops_per_step) + " FLOPs a step");
  return {"Model", run.model.empty() ? "?" : run.model, note};
}

// What the model reached.
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

std::string SlowerText(double slower) { return "+" + Percent(slower); }

std::vector<Tile> TilesOf(const ReportData& data) {
  std::vector<Tile> tiles;
  if (const RunInfo* run = RunOf(data)) tiles.push_back(ModelTile(*run));
  tiles.push_back(RanksTile(data));
  tiles.push_back(
      {"Duration", DurationText(data), data.ended ? "" : "until " + TimeText(data.made_unix_ms)});
  const size_t restarts = data.events.restarts.size();
  if (restarts > 0) tiles.push_back({"Restarts", std::to_string(restarts), ""});
  if (const std::optional<Tile> evaluation = EvaluationTile(data)) tiles.push_back(*evaluation);
  const std::vector<MetricsPoint> windows = WindowsOf(data);
  if (!windows.empty()) {
    const double loss = LastOf(windows, &MetricsPoint::loss);
    const std::string step = "at step " + std::to_string(windows.back().step);
    if (!std::isnan(loss)) tiles.push_back({"Last loss", ShortNumber(loss), step});
    const double tokens = MedianOf(windows, &MetricsPoint::tokens_per_s);
    const double samples = MedianOf(windows, &MetricsPoint::samples_per_s);
    if (tokens > 0)
      tiles.push_back({"Throughput", ShortNumber(tokens), "tokens/s, median"});
    else if (samples > 0)
      tiles.push_back({"Throughput", ShortNumber(samples), "samples/s, median"});
    const double mfu = MedianOf(windows, &MetricsPoint::mfu);
    if (!std::isnan(mfu)) tiles.push_back({"MFU", Percent(mfu), "of the hardware's peak, median"});
  }
  if (const std::optional<JobPace> pace = PaceOf(data);
      pace && pace->ranks.size() > 1 && pace->ranks.front().slower >= kNotableSlower) {
    const RankPace& slowest = pace->ranks.front();
    tiles.push_back({"Slowest rank",
                     "rank " + std::to_string(slowest.rank) + ", " + SlowerText(slowest.slower),
                     "than the median rank, on " + slowest.node});
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

std::string HeaderHtml(const ReportData& data) {
  const RunInfo* run = RunOf(data);
  const char* const look = !data.ended ? "busy" : data.exit_code == 0 ? "good" : "bad";
  const char* const sign = !data.ended ? "● " : data.exit_code == 0 ? "✓ " : "✕ ";
  const std::string job = "Job " + data.job_id;
  const bool has_model = run != nullptr && !run->model.empty();
  return "<header class=\"wide\"><h1>" + Escaped(has_model ? run->model : job) +
         "</h1><span class=\"state " + look + "\">" + sign + Escaped(data.state) + "</span><p>" +
         Escaped((has_model ? job + ", started " : "Started ") + TimeText(data.started_unix_ms)) +
         "</p><p><code>" + Escaped(data.command) + "</code></p></header>";
}

std::string CauseHtml(const ReportData& data) {
  std::string cause = data.events.cause;
  if (cause.empty()) cause = data.detail;
  if (cause.empty()) return "";
  const bool failed = data.ended && data.exit_code != 0;
  return std::string("<section class=\"note wide") + (failed ? "" : " mild") + "\" id=\"cause\">" +
         (failed ? "<h2>First cause</h2>" : "") + "<p>" + Escaped(cause) + "</p></section>";
}

std::string TroublesHtml(const ReportData& data) {
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
  if (troubles.empty()) return "";
  std::string html =
      "<section class=\"note mild wide\" id=\"left_out\"><h2>What this page lacks</h2><ul>";
  for (const std::string& trouble : troubles) html += "<li>" + Escaped(trouble) + "</li>";
  return html + "</ul></section>";
}

}  // namespace

std::string ReportPage(const ReportData& data) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>" +
      Escaped("dslaunch report: " + data.job_id) + "</title><style>" + kReportStyle +
      "</style></head>\n<body><main>\n";
  for (const std::string& section :
       {HeaderHtml(data), CauseHtml(data), TilesHtml(TilesOf(data)), TroublesHtml(data),
        LossSection(data), AccuracySection(data), LearningRateSection(data),
        GradientNormSection(data), LossScaleSection(data), ThroughputSection(data),
        MfuSection(data), StepTimeSection(data), OperatorsSection(data), CommunicationSection(data),
        MemorySection(data), StartsSection(data), TracesSection(data)}) {
    if (!section.empty()) html += section + "\n";
  }
  return html + "<footer class=\"wide\">Made by <code>dslaunch report</code>, " +
         Escaped(TimeText(data.made_unix_ms)) + ".</footer>\n</main></body></html>\n";
}

}  // namespace dslaunch
