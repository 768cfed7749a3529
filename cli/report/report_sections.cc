#include "cli/report/report_sections.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/count.h"
#include "cli/report/report_info.h"
#include "cli/report/report_text.h"

namespace dslaunch {
namespace {

constexpr size_t kSmoothFrom = 150;  // least number of points of a line that is smoothed
// Least ratio of the largest to the smallest value for which an axis is logarithmic.
constexpr double kLogFrom = 50;

bool HasWindows(const ReportData& data) { return !WindowsOf(data).empty(); }

const std::string& NoMetrics() {
  static const std::string text =
      "No rank has left a metrics.jsonl. dslaunch train writes it from its first steps on; another "
      "program may write it into the folder that DSLAUNCH_RANK_DIR names.";
  return text;
}

// Returns a plot of a number of rank 0. The plot has no lines if the number was not reported.
Plot PlotOf(const ReportData& data, const std::string& title, double MetricsPoint::*number) {
  Plot plot;
  plot.title = title + " by step";
  plot.marks = MarksOf(data);
  Pieces pieces = PiecesOf(data, number);
  if (!pieces.empty()) plot.lines.push_back({.name = title, .pieces = std::move(pieces)});
  return plot;
}

// Adds a smoothed line if there are many points, and makes the raw line faint.
void Smooth(Plot& plot) {
  Plot::Line& raw = plot.lines.front();
  size_t points = 0;
  for (const auto& piece : raw.pieces) points += piece.size();
  if (points < kSmoothFrom) return;
  Plot::Line smooth = raw;
  for (auto& piece : smooth.pieces) piece = Smoothed(piece, points / 60);
  raw.faint = true;
  raw.name.clear();
  plot.lines.push_back(std::move(smooth));
}

void AddEvaluations(const ReportData& data, double EvalPoint::*number, const std::string& name,
                    Plot& plot) {
  Pieces pieces = PiecesOf(data, number);
  if (!pieces.empty())
    plot.lines.push_back({.name = name, .color = 3, .pieces = std::move(pieces)});
}

PlotScale LogWhereWide(const Pieces& pieces) {
  double low = INFINITY, high = 0;
  for (const auto& piece : pieces) {
    for (const auto& [x, y] : piece) {
      low = std::min(low, y);
      high = std::max(high, y);
    }
  }
  return low > 0 && high > low * kLogFrom ? PlotScale::kLog10 : PlotScale::kLinear;
}

// Returns whether the loss scale ever differed from 1, or a step was skipped.
bool IsLossScaled(const ReportData& data) {
  const std::vector<MetricsPoint> windows = WindowsOf(data);
  const auto has_scale = [](const MetricsPoint& window) { return !std::isnan(window.loss_scale); };
  return std::ranges::any_of(windows, has_scale) &&
         std::ranges::any_of(windows, [&](const MetricsPoint& window) {
           return window.skipped || (has_scale(window) && window.loss_scale != 1);
         });
}

Json OneNumberSection(const ReportData& data, const std::string& id, const std::string& heading,
                      double MetricsPoint::*number, PlotScale scale, const std::string& missing) {
  Plot plot = PlotOf(data, heading, number);
  if (plot.lines.empty()) return Missing(id, heading, missing);
  plot.scale = scale;
  plot.from_zero = true;
  double most = plot.lines.front().pieces.front().front().second;
  for (const auto& piece : plot.lines.front().pieces) {
    for (const auto& [step, value] : piece) most = std::max(most, value);
  }
  const std::string lead = "Up to " + ShortNumber(most) + ", at last " +
                           ShortNumber(plot.lines.front().pieces.back().back().second) + ".";
  // If the card of the loss scale is shown, this card takes a third of the width to leave room for
  // it.
  return Card(id, heading, lead, {PlotPart(plot)},
              IsLossScaled(data) ? Width::kThird : Width::kHalf);
}

}  // namespace

Json LossSection(const ReportData& data) {
  Plot plot = PlotOf(data, "Loss", &MetricsPoint::loss);
  if (plot.lines.empty()) {
    // A job without training has no losses, so the section is omitted.
    if (!HasWindows(data) && !EvaluationsOf(data).empty()) return nullptr;
    return Missing("loss", "Loss",
                   HasWindows(data) ? "metrics.jsonl of rank 0 contains no loss." : NoMetrics());
  }
  plot.height = 300;
  plot.scale = LogWhereWide(plot.lines.front().pieces);
  const std::vector<PlotPoint>& last = plot.lines.front().pieces.back();
  const PlotPoint& first = plot.lines.front().pieces.front().front();
  std::string lead = (first == last.back() ? "" : "From " + ShortNumber(first.second) + " to ") +
                     ShortNumber(last.back().second) + " at step " +
                     std::to_string(static_cast<int64_t>(last.back().first)) + ".";
  size_t bad = 0;
  for (const MetricsPoint& window : WindowsOf(data)) bad += window.loss_is_bad ? 1 : 0;
  if (bad > 0) lead += " " + Count(bad, "window") + " had a loss that was not finite.";
  Smooth(plot);
  AddEvaluations(data, &EvalPoint::loss, "On evaluation data", plot);
  return Card("loss", "Loss", lead, {PlotPart(plot)}, Width::kWhole);
}

Json AccuracySection(const ReportData& data) {
  Plot plot;
  AddEvaluations(data, &EvalPoint::accuracy, "Accuracy", plot);
  // The tile shows a single value, so a plot needs at least two.
  if (plot.lines.empty() || EvaluationsOf(data).size() < 2) return nullptr;
  plot.title = "Accuracy by step";
  plot.marks = MarksOf(data);
  plot.number = PlotNumber::kPercent;
  const PlotPoint& last = plot.lines.front().pieces.back().back();
  return Card("accuracy", "Accuracy on evaluation data",
              AccuracyText(last.second) + " at step " +
                  std::to_string(static_cast<int64_t>(last.first)) + ".",
              {PlotPart(plot)}, Width::kWhole);
}

Json OtherResultsSection(const ReportData& data) {
  constexpr size_t kMostPlots = 12;
  std::vector<std::string> names;
  for (const EvalPoint& eval : EvaluationsOf(data)) {
    for (const auto& [name, number] : eval.others) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  if (names.empty()) return nullptr;
  std::vector<Json> rows;
  std::vector<Plot> plots;
  for (const std::string& name : names) {
    Pieces pieces = OtherResultsOf(data, name);
    size_t points = 0;
    double low = INFINITY, high = -INFINITY;
    for (const auto& piece : pieces) {
      points += piece.size();
      for (const auto& [step, value] : piece) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
    }
    const auto [step, last] = pieces.back().back();
    rows.push_back({name, ShortNumber(last), std::to_string(static_cast<int64_t>(step)),
                    ShortNumber(low), ShortNumber(high)});
    if (points < 2 || plots.size() == kMostPlots) continue;
    Plot plot;
    plot.title = name;
    plot.marks = MarksOf(data);
    plot.lines.push_back({.name = name, .color = 3, .pieces = std::move(pieces)});
    plots.push_back(std::move(plot));
  }
  Json cards = Json::array();
  cards.push_back(
      Card("evaluation", "Results on evaluation data", "",
           {TablePart({"Result", " Last", " At step", " Lowest", " Highest"}, std::move(rows))},
           Width::kWhole));
  const Width width = plots.size() == 1   ? Width::kWhole
                      : plots.size() == 2 ? Width::kHalf
                                          : Width::kThird;
  for (size_t i = 0; i < plots.size(); ++i) {
    cards.push_back(Card("evaluation_" + std::to_string(i + 1), plots[i].title + " by step", "",
                         {PlotPart(plots[i])}, width));
  }
  return cards;
}

Json LearningRateSection(const ReportData& data) {
  if (!HasWindows(data)) return nullptr;
  return OneNumberSection(data, "lr", "Learning rate", &MetricsPoint::lr, PlotScale::kLinear,
                          "metrics.jsonl of rank 0 contains no lr.");
}

Json GradientNormSection(const ReportData& data) {
  if (!HasWindows(data)) return nullptr;
  return OneNumberSection(data, "grad_norm", "Gradient norm, before clipping",
                          &MetricsPoint::grad_norm, PlotScale::kLog10,
                          "metrics.jsonl of rank 0 contains no grad_norm.");
}

Json LossScaleSection(const ReportData& data) {
  if (!IsLossScaled(data)) return nullptr;
  Plot plot = PlotOf(data, "Loss scale", &MetricsPoint::loss_scale);
  plot.scale = PlotScale::kLog2;
  plot.number = PlotNumber::kWhole;
  for (const MetricsPoint& window : WindowsOf(data)) {
    if (window.skipped) plot.crosses.push_back(static_cast<double>(window.step));
  }
  std::ranges::sort(plot.crosses);
  const std::string lead =
      plot.crosses.empty() ? "No step was skipped."
                           : "✕ " + Count(plot.crosses.size(), "window") + " with a skipped step.";
  return Card("loss_scale", "Loss scale", lead, {PlotPart(plot)}, Width::kThird);
}

Json ThroughputSection(const ReportData& data) {
  if (!HasWindows(data)) return nullptr;
  Plot plot = PlotOf(data, "Throughput", &MetricsPoint::tokens_per_s);
  const auto is_zero = [](const PlotPoint& point) { return point.second == 0; };
  const bool has_tokens =
      !plot.lines.empty() && !std::ranges::all_of(plot.lines.front().pieces.front(), is_zero);
  if (!has_tokens) plot = PlotOf(data, "Throughput", &MetricsPoint::samples_per_s);
  if (plot.lines.empty()) {
    return Missing("throughput", "Throughput",
                   "metrics.jsonl of rank 0 contains neither tokens_per_s nor samples_per_s.");
  }
  plot.from_zero = true;
  plot.unit = has_tokens ? "tokens/s" : "samples/s";
  plot.lines.front().color = 2;
  const bool is_alone = PiecesOf(data, &MetricsPoint::mfu).empty();
  return Card("throughput", "Throughput of all ranks", "", {PlotPart(plot)},
              is_alone ? Width::kWhole : Width::kHalf);
}

Json MfuSection(const ReportData& data) {
  if (!HasWindows(data)) return nullptr;
  Plot plot = PlotOf(data, "MFU", &MetricsPoint::mfu);
  const std::string heading = "Model FLOPs utilization (MFU)";
  if (plot.lines.empty()) {
    return Missing("mfu", heading,
                   "metrics.jsonl of rank 0 contains no mfu, because the peak of the hardware is "
                   "not known; set the peak of one rank with --set run.peak_tflops=T.");
  }
  plot.from_zero = true;
  plot.number = PlotNumber::kPercent;
  plot.lines.front().color = 5;
  return Card("mfu", heading, "", {PlotPart(plot)}, Width::kHalf);
}

}  // namespace dslaunch
