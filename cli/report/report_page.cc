#include "cli/report/report_page.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "base/count.h"
#include "cli/report/report_html.h"
#include "cli/report/report_info.h"
#include "cli/report/report_plot.h"
#include "cli/report/report_sections.h"
#include "cli/report/report_style.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxNamedNodes = 6;
constexpr double kNotableSlower = 0.01;  // relative to the median rank

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

// Returns the last value that rank 0 reported.
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
  // A smaller difference is explained by process scheduling.
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

// Returns how the model is trained: "batch 256 = 64 x 1 x 4, Adam, lr 0.002; data
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

// The results of the last evaluation.
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

std::string HeaderHtml(const ReportData& data) {
  const ReportedRun* run = RunOf(data);
  const char* const look = !data.ended ? "busy" : data.exit_code == 0 ? "good" : "bad";
  const char* const sign = !data.ended ? "● " : data.exit_code == 0 ? "✓ " : "✕ ";
  const std::string job = "Job " + data.job_id;
  const std::string trained = run == nullptr ? "" : TrainingText(*run);
  const bool has_model = run != nullptr && !run->model.empty();
  return "<header class=\"wide\"><h1>" + Escaped(has_model ? run->model : job) +
         "</h1><span class=\"state " + look + "\">" + sign + Escaped(data.state) + "</span><p>" +
         Escaped((has_model ? job + ", started " : "Started ") + TimeText(data.started_unix_ms)) +
         "</p>" + (trained.empty() ? "" : "<p>" + Escaped(trained) + "</p>") + "<p><code>" +
         Escaped(data.command) + "</code></p></header>";
}

std::string CauseHtml(const ReportData& data) {
  std::string cause = data.events.cause;
  if (cause.empty()) cause = data.detail;
  if (cause.empty()) return "";
  const bool failed = data.ended && data.exit_code != 0;
  return std::string("<section class=\"note wide") + (failed ? "" : " mild") + "\" id=\"cause\">" +
         (failed ? "<h2>First cause</h2>" : "") + "<p>" + Escaped(cause) + "</p>" +
         (data.events.evidence.empty()
              ? ""
              : "<p><code>" + Escaped(data.events.evidence) + "</code></p>") +
         "</section>";
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
  std::string missing;
  for (const std::string& section :
       {HeaderHtml(data),          CauseHtml(data),           TilesHtml(TilesOf(data)),
        TroublesHtml(data),        LossSection(data),         AccuracySection(data),
        OtherResultsSection(data), LearningRateSection(data), GradientNormSection(data),
        LossScaleSection(data),    ThroughputSection(data),   MfuSection(data),
        StepTimeSection(data),     OperatorsSection(data),    CommunicationSection(data),
        MemorySection(data),       GoodputSection(data),      PreflightSection(data),
        StartsSection(data),       TracesSection(data)}) {
    if (IsMissing(section))
      missing += section;
    else if (!section.empty())
      html += section + "\n";
  }
  if (!missing.empty())
    html +=
        Card("not_recorded", "Not recorded", "", "<ul>" + missing + "</ul>", Width::kWhole) + "\n";
  return html + "<footer class=\"wide\">Made by <code>dslaunch report</code>, " +
         Escaped(TimeText(data.made_unix_ms)) + ".</footer>\n</main></body></html>\n";
}

}  // namespace dslaunch
