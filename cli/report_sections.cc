#include "cli/report_sections.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <utility>

#include "cli/count.h"
#include "cli/report_facts.h"
#include "cli/report_plot.h"

namespace dslaunch {
namespace {

constexpr int kWholeWidth = 1080;
constexpr int kThirdWidth = 350;
constexpr size_t kSmoothFrom = 150;  // points, from which a line is smoothed
constexpr double kLogFrom = 50;      // largest over smallest, from which an axis is logarithmic
constexpr size_t kMaxRankLines = 8;  // beyond them a band and the slowest
constexpr size_t kMaxSlowLines = 3;
constexpr size_t kMaxRankRows = 16;
constexpr size_t kMaxOperatorRows = 20;
constexpr double kSmallShare = 0.001;  // of the time, below which operators are not listed
constexpr size_t kMaxTraceRows = 16;
constexpr double kBeyond = 1.75;  // times the usual step: such windows leave the plot

constexpr char kNoProfile[] =
    "No rank was profiled; dslaunch train --profile records a few steps of each.";

// How much of the page's width a section has.
enum class Width { kThird, kHalf, kWhole };

// `lead` and `body` are HTML.
std::string Card(const std::string& id, const std::string& heading, const std::string& lead,
                 const std::string& body, Width width) {
  static constexpr const char* kClasses[] = {"third", "half", "wide"};
  return std::string("<section class=\"card ") + kClasses[static_cast<size_t>(width)] + "\" id=\"" +
         id + "\"><h2>" + Escaped(heading) + "</h2>" +
         (lead.empty() ? "" : "<p class=\"lead\">" + lead + "</p>") + body + "</section>";
}

std::string Missing(const std::string& id, const std::string& heading, const std::string& why,
                    Width width) {
  return Card(id, heading, "", "<p class=\"missing\">" + Escaped(why) + "</p>", width);
}

std::string PlotHtml(const Plot& plot) {
  std::string legend;
  size_t named = 0;
  for (const Plot::Line& line : plot.lines) {
    if (line.name.empty()) continue;
    ++named;
    const std::string color = line.color < 0 ? "grey" : "c" + std::to_string(line.color % 8);
    legend += "<li><i class=\"" + color + "\"></i>" + Escaped(line.name) + "</li>";
  }
  if (named < 2) legend.clear();
  if (!legend.empty()) legend = "<ul class=\"legend\">" + legend + "</ul>";
  return legend + "<div class=\"scroll\">" + DrawPlot(plot) + "</div>";
}

// Widths in parts of 1, each with its class.
std::string BarHtml(const std::vector<std::pair<double, std::string>>& parts) {
  std::string html = "<span class=\"bar\">";
  for (const auto& [part, color] : parts) {
    const int promille = static_cast<int>(std::lround(std::clamp(part, 0.0, 1.0) * 1000));
    html += "<i class=\"" + color + "\" style=\"width:" + std::to_string(promille / 10) + "." +
            std::to_string(promille % 10) + "%\"></i>";
  }
  return html + "</span>";
}

std::string Cell(const std::string& text, const char* type = "n") {
  return std::string("<td class=\"") + type + "\">" + Escaped(text) + "</td>";
}

std::string SignedPercent(double part) {
  return (part == 0 ? "±" : part < 0 ? "−" : "+") + Percent(std::abs(part));
}

// Columns that begin with a blank are numbers.
std::string TableHtml(const std::vector<std::string>& columns, const std::string& rows) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& column : columns) {
    const bool is_number = column.starts_with(' ');
    html += std::string(is_number ? "<th class=\"n\">" : "<th>") +
            Escaped(is_number ? column.substr(1) : column) + "</th>";
  }
  return html + "</tr></thead><tbody>" + rows + "</tbody></table></div>";
}

// `together` may be empty.
std::string MoreText(size_t all, size_t shown, const std::string& what,
                     const std::string& together = "") {
  if (all <= shown) return "";
  return "<p class=\"missing\">" +
         Escaped("and " + Count(all - shown, "more " + what) +
                 (together.empty() ? "" : ", together " + together) + ".") +
         "</p>";
}

std::string WholeNumber(double value) {
  return value == std::floor(value) && value < 1e9 ? std::to_string(static_cast<int64_t>(value))
                                                   : ShortNumber(value);
}

bool HasWindows(const ReportData& data) { return !WindowsOf(data).empty(); }

const std::string& NoMetrics() {
  static const std::string text =
      "No rank has left a metrics.jsonl. dslaunch train writes it from its first steps on; another "
      "program may write it into the folder that DSLAUNCH_RANK_DIR names.";
  return text;
}

// A plot of one number of rank 0, if it told it.
Plot PlotOf(const ReportData& data, const std::string& title, double MetricsPoint::*number) {
  Plot plot;
  plot.title = title + " by step";
  plot.marks = MarksOf(data);
  Pieces pieces = PiecesOf(data, number);
  if (!pieces.empty()) plot.lines.push_back({.name = title, .pieces = std::move(pieces)});
  return plot;
}

// The raw line fades behind a smooth one where it is long.
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

std::string OneNumberSection(const ReportData& data, const std::string& id,
                             const std::string& heading, double MetricsPoint::*number,
                             PlotScale scale, const std::string& missing) {
  Plot plot = PlotOf(data, heading, number);
  if (plot.lines.empty()) return Missing(id, heading, missing, Width::kThird);
  plot.width = kThirdWidth;
  plot.scale = scale;
  plot.from_zero = true;
  double most = plot.lines.front().pieces.front().front().second;
  for (const auto& piece : plot.lines.front().pieces) {
    for (const auto& [step, value] : piece) most = std::max(most, value);
  }
  const std::string lead = "Up to " + ShortNumber(most) + ", at last " +
                           ShortNumber(plot.lines.front().pieces.back().back().second) + ".";
  return Card(id, heading, Escaped(lead), PlotHtml(plot), Width::kThird);
}

std::string NodeOf(const RankPace& pace) { return pace.node.empty() ? "" : " (" + pace.node + ")"; }

std::string PaceLead(const JobPace& pace) {
  const std::string what = pace.own_work_known ? "own work" : "step";
  if (pace.ranks.size() < 2) {
    return Escaped("Only rank " + std::to_string(pace.ranks.front().rank) +
                   " told its times, so there is nothing to compare it with.");
  }
  std::vector<std::string> slow;
  for (const RankPace& rank : pace.ranks) {
    if (!rank.straggler) continue;
    slow.push_back("rank " + std::to_string(rank.rank) + NodeOf(rank) + " takes " +
                   ShortSeconds(rank.own_s) + ", " + Percent(rank.slower) + " more");
  }
  const std::string median =
      "The median rank's " + what + " takes " + ShortSeconds(pace.median_s) + " in each step";
  if (slow.empty()) {
    return Escaped(median + "; no rank takes " + Percent(kStragglerSlower) + " more.");
  }
  return Escaped(median + ". ") + "<strong>" +
         Escaped((slow.size() == 1 ? "A straggler: " : "Stragglers: ") + NameList(slow, "; ", 4) +
                 ".") +
         "</strong>" +
         Escaped(pace.own_work_known ? " The others wait for it at the end of each step." : "");
}

// A line of each rank, or where they are many what most do, and the slowest.
void DrawRanks(const ReportData& data, const JobPace& pace, double MetricsPoint::*number,
               Plot& plot) {
  if (pace.ranks.size() <= kMaxRankLines) {
    std::vector<RankPace> ranks = pace.ranks;
    std::ranges::sort(ranks, {}, &RankPace::rank);
    for (size_t i = 0; i < ranks.size(); ++i) {
      plot.lines.push_back({.name = "rank " + std::to_string(ranks[i].rank),
                            .color = static_cast<int>(i),
                            .pieces = PiecesOf(data, ranks[i].rank, number)});
    }
    return;
  }
  std::map<double, std::vector<double>> by_step;
  for (const RankFiles& files : data.ranks) {
    if (files.attempt != pace.attempt || !files.metrics) continue;
    for (const MetricsPoint& point : files.metrics->points) {
      if (!std::isnan(point.*number))
        by_step[static_cast<double>(point.step)].push_back(point.*number);
    }
  }
  Plot::Line median = {.name = "median rank", .pieces = {{}}};
  const size_t stride = by_step.size() / 500 + 1;
  size_t i = 0;
  for (const auto& [step, times] : by_step) {
    if (i++ % stride != 0) continue;
    plot.band.emplace_back(
        step, std::minmax({*std::ranges::min_element(times), *std::ranges::max_element(times)}));
    median.pieces.front().emplace_back(step, MedianOf(times));
  }
  plot.lines.push_back(std::move(median));
  for (size_t slow = 0; slow < kMaxSlowLines && pace.ranks[slow].straggler; ++slow) {
    plot.lines.push_back({.name = "rank " + std::to_string(pace.ranks[slow].rank),
                          .color = static_cast<int>(slow) + 1,
                          .pieces = PiecesOf(data, pace.ranks[slow].rank, number)});
  }
}

std::string PaceTable(const JobPace& pace) {
  double longest = 0;
  for (const RankPace& rank : pace.ranks)
    longest = std::max({longest, rank.own_s, std::isnan(rank.step_s) ? 0 : rank.step_s});
  std::string rows;
  for (size_t i = 0; i < std::min(pace.ranks.size(), kMaxRankRows); ++i) {
    const RankPace& rank = pace.ranks[i];
    const double waits = std::isnan(rank.step_s) ? 0 : std::max(rank.step_s - rank.own_s, 0.0);
    const double scale = longest > 0 ? 1 / longest : 0;
    rows += "<tr><td class=\"name\">" +
            Escaped("rank " + std::to_string(rank.rank) + NodeOf(rank)) +
            (rank.straggler ? " <strong class=\"bad\">straggler</strong>" : "") + "</td>" +
            Cell(ShortSeconds(rank.own_s));
    if (pace.own_work_known) rows += Cell(std::isnan(rank.step_s) ? "" : ShortSeconds(waits));
    rows += Cell(SignedPercent(rank.slower)) + "<td class=\"bars\">" +
            BarHtml({{rank.own_s * scale, rank.straggler ? "c6" : "c0"}, {waits * scale, "grey"}}) +
            "</td></tr>";
  }
  std::vector<std::string> columns = {"Rank", pace.own_work_known ? " Own work" : " Step"};
  if (pace.own_work_known) columns.push_back(" Waits");
  columns.insert(columns.end(), {" Against the median rank", ""});
  return TableHtml(columns, rows) + MoreText(pace.ranks.size(), kMaxRankRows, "rank");
}

}  // namespace

std::string TimeText(int64_t unix_ms) {
  if (unix_ms == 0) return "?";
  const std::time_t seconds = unix_ms / 1000;
  std::tm local{};
  char text[64];
  if (localtime_r(&seconds, &local) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z", &local) == 0)
    return "?";
  return text;
}

std::string LossSection(const ReportData& data) {
  Plot plot = PlotOf(data, "Loss", &MetricsPoint::loss);
  if (plot.lines.empty()) {
    return Missing("loss", "Loss",
                   HasWindows(data) ? "Rank 0 told no loss in its metrics.jsonl." : NoMetrics(),
                   Width::kWhole);
  }
  plot.width = kWholeWidth;
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
  return Card("loss", "Loss", Escaped(lead), PlotHtml(plot), Width::kWhole);
}

std::string LearningRateSection(const ReportData& data) {
  if (!HasWindows(data)) return "";
  return OneNumberSection(data, "lr", "Learning rate", &MetricsPoint::lr, PlotScale::kLinear,
                          "Rank 0 told no lr in its metrics.jsonl.");
}

std::string GradientNormSection(const ReportData& data) {
  if (!HasWindows(data)) return "";
  return OneNumberSection(data, "grad_norm", "Gradient norm, before clipping",
                          &MetricsPoint::grad_norm, PlotScale::kLog10,
                          "Rank 0 told no grad_norm in its metrics.jsonl.");
}

std::string LossScaleSection(const ReportData& data) {
  if (!HasWindows(data)) return "";
  Plot plot = PlotOf(data, "Loss scale", &MetricsPoint::loss_scale);
  if (plot.lines.empty()) {
    return Missing("loss_scale", "Loss scale",
                   "Rank 0 told no loss_scale in its metrics.jsonl; \"fp16\" in the engine's "
                   "configuration makes one.",
                   Width::kThird);
  }
  plot.width = kThirdWidth;
  plot.scale = PlotScale::kLog2;
  plot.number = WholeNumber;
  for (const MetricsPoint& window : WindowsOf(data)) {
    if (window.skipped) plot.crosses.push_back(static_cast<double>(window.step));
  }
  std::ranges::sort(plot.crosses);
  if (plot.crosses.empty() && std::ranges::all_of(plot.lines.front().pieces, [](const auto& piece) {
        return std::ranges::all_of(piece, [](const PlotPoint& point) { return point.second == 1; });
      })) {
    return Missing("loss_scale", "Loss scale",
                   "The loss was not scaled, and no step was skipped. \"fp16\" in the engine's "
                   "configuration scales it.",
                   Width::kThird);
  }
  const std::string lead =
      plot.crosses.empty() ? "No step was skipped."
                           : "✕ " + Count(plot.crosses.size(), "window") + " with a skipped step.";
  return Card("loss_scale", "Loss scale", Escaped(lead), PlotHtml(plot), Width::kThird);
}

std::string ThroughputSection(const ReportData& data) {
  if (!HasWindows(data)) return "";
  Plot plot = PlotOf(data, "Throughput", &MetricsPoint::tokens_per_s);
  const auto is_zero = [](const PlotPoint& point) { return point.second == 0; };
  const bool has_tokens =
      !plot.lines.empty() && !std::ranges::all_of(plot.lines.front().pieces.front(), is_zero);
  if (!has_tokens) plot = PlotOf(data, "Throughput", &MetricsPoint::samples_per_s);
  if (plot.lines.empty()) {
    return Missing("throughput", "Throughput",
                   "Rank 0 told neither tokens_per_s nor samples_per_s in its metrics.jsonl.",
                   Width::kHalf);
  }
  plot.from_zero = true;
  plot.unit = has_tokens ? "tokens/s" : "samples/s";
  plot.lines.front().color = 2;
  return Card("throughput", "Throughput of all ranks", "", PlotHtml(plot), Width::kHalf);
}

std::string MfuSection(const ReportData& data) {
  if (!HasWindows(data)) return "";
  Plot plot = PlotOf(data, "MFU", &MetricsPoint::mfu);
  const std::string heading = "Model FLOPs utilization (MFU)";
  if (plot.lines.empty()) {
    return Missing("mfu", heading,
                   "Rank 0 told no mfu in its metrics.jsonl, because the peak of the hardware is "
                   "not known; --set run.peak_tflops=T, of one rank, says it.",
                   Width::kHalf);
  }
  plot.from_zero = true;
  plot.number = Percent;
  plot.lines.front().color = 5;
  return Card("mfu", heading, "", PlotHtml(plot), Width::kHalf);
}

std::string StepTimeSection(const ReportData& data) {
  const std::string heading = "Step time by rank";
  const std::optional<JobPace> pace = PaceOf(data);
  if (!pace) {
    return HasWindows(data)
               ? Missing("step_time", heading,
                         "No rank told step_s or compute_s in its metrics.jsonl.", Width::kWhole)
               : "";
  }
  double MetricsPoint::*const number =
      pace->own_work_known ? &MetricsPoint::compute_s : &MetricsPoint::step_s;
  Plot plot;
  plot.title = heading;
  plot.unit = pace->own_work_known ? "own work in a step" : "a step";
  plot.number = ShortSeconds;
  plot.width = kWholeWidth;
  plot.height = 280;
  plot.from_zero = true;
  plot.marks = MarksOf(data);
  plot.y_limit = kBeyond * pace->ranks.front().own_s;
  DrawRanks(data, *pace, number, plot);
  size_t beyond = 0;
  double longest = 0;
  for (const RankFiles& files : data.ranks) {
    if (!files.metrics) continue;
    for (const MetricsPoint& point : files.metrics->points) {
      if (!(point.*number > plot.y_limit)) continue;
      ++beyond;
      longest = std::max(longest, point.*number);
    }
  }
  std::string lead = PaceLead(*pace);
  if (beyond > 0 && plot.y_limit > 0) {
    lead += Escaped(" " + Count(beyond, "window") + " took longer than the plot shows, up to " +
                    ShortSeconds(longest) + ".");
  }
  std::string after;
  if (data.events.starts.size() > 1)
    after = "<h3>" + Escaped("Medians since start " + std::to_string(pace->attempt)) + "</h3>";
  else
    after = "<h3>Medians over the run</h3>";
  return Card("step_time", heading, lead, PlotHtml(plot) + after + PaceTable(*pace), Width::kWhole);
}

std::string OperatorsSection(const ReportData& data) {
  const std::string heading = "Time by operator";
  const std::vector<OperatorRow> operators = OperatorsOf(data);
  if (operators.empty()) return Missing("operators", heading, kNoProfile, Width::kWhole);
  double all_s = 0;
  for (const OperatorRow& row : operators) all_s += row.self_s;
  const double most = std::max(operators.front().self_s, 1e-9);
  std::string rows;
  size_t shown = 0;
  double shown_s = 0;
  for (const OperatorRow& row : operators) {
    if (shown == kMaxOperatorRows || (row.share < kSmallShare && shown > 0)) break;
    ++shown;
    shown_s += row.self_s;
    rows += "<tr><td class=\"name\"><code>" + Escaped(row.name) + "</code></td>" +
            Cell(ShortNumber(row.calls)) + Cell(ShortSeconds(row.self_s)) +
            Cell(Percent(row.share)) +
            Cell(std::isnan(row.self_bytes) ? "" : ShortBytes(row.self_bytes)) +
            "<td class=\"bars\">" + BarHtml({{row.self_s / most, "c0"}}) + "</td></tr>";
  }
  return Card(
      "operators", heading,
      Escaped("Self time, without what an operator calls; in one step, mean of the profiled "
              "ranks. All operators together: " +
              ShortSeconds(all_s) + "."),
      TableHtml({"Operator", " Calls", " Self time", " Share", " Allocates", ""}, rows) +
          MoreText(operators.size(), shown, "operator",
                   ShortSeconds(std::max(all_s - shown_s, 0.0))),
      Width::kWhole);
}

std::string CommunicationSection(const ReportData& data) {
  const std::string heading = "Communication";
  const std::optional<CommunicationFacts> facts = CommunicationOf(data);
  if (!facts) return Missing("communication", heading, kNoProfile, Width::kWhole);
  if (facts->total_s == 0)
    return Missing("communication", heading, "The profiled ranks did not communicate.",
                   Width::kWhole);
  std::string lead = "Ranks communicate for " + ShortSeconds(facts->total_s);
  if (facts->step_s > 0) lead += " of each step's " + ShortSeconds(facts->step_s);
  lead += "; " + Percent(facts->HiddenShare()) + " of it is hidden behind computation, and " +
          ShortSeconds(facts->total_s - facts->hidden_s) + " in each step is not.";
  double most = 0;
  for (const CommunicationFacts::Rank& rank : facts->ranks) most = std::max(most, rank.total_s);
  std::string ranks;
  for (size_t i = 0; i < std::min(facts->ranks.size(), kMaxRankRows); ++i) {
    const CommunicationFacts::Rank& rank = facts->ranks[i];
    const double shown = rank.total_s - rank.hidden_s;
    ranks += "<tr>" + Cell("rank " + std::to_string(rank.rank), "name") +
             Cell(ShortSeconds(rank.total_s)) + Cell(ShortSeconds(rank.hidden_s)) +
             Cell(rank.total_s > 0 ? Percent(rank.hidden_s / rank.total_s) : "") +
             "<td class=\"bars\">" + BarHtml({{rank.hidden_s / most, "c2"}, {shown / most, "c1"}}) +
             "</td></tr>";
  }
  std::string kinds;
  for (size_t i = 0; i < std::min(facts->kinds.size(), kMaxOperatorRows); ++i) {
    const RankProfile::Communication& kind = facts->kinds[i];
    kinds += "<tr><td class=\"name\"><code>" + Escaped(kind.kind) + "</code></td>" +
             Cell(ShortNumber(kind.calls)) + Cell(ShortBytes(kind.bytes)) +
             Cell(ShortSeconds(kind.s)) +
             Cell(kind.s > 0 && kind.bytes > 0 ? ShortBytes(kind.bytes / kind.s) + "/s" : "") +
             "<td class=\"bars\">" + BarHtml({{kind.s / facts->total_s, "c0"}}) + "</td></tr>";
  }
  std::string body =
      "<ul class=\"legend\"><li><i class=\"c2\"></i>hidden behind computation</li>"
      "<li><i class=\"c1\"></i>the rank waits for it</li></ul>" +
      TableHtml({"Rank", " In each step", " Hidden", " Share", ""}, ranks) +
      MoreText(facts->ranks.size(), kMaxRankRows, "rank");
  if (!kinds.empty()) {
    body += "<h3>By kind, in one step, mean of the profiled ranks</h3>" +
            TableHtml({"Kind", " Calls", " Volume", " Time", " Rate", ""}, kinds) +
            MoreText(facts->kinds.size(), kMaxOperatorRows, "kind");
  }
  return Card("communication", heading, Escaped(lead), body, Width::kWhole);
}

std::string MemorySection(const ReportData& data) {
  const std::string heading = "Memory by category, predicted and measured";
  const MemoryFacts memory = MemoryOf(data);
  if (memory.rows.empty()) {
    return Missing("memory", heading,
                   "No rank told its memory. dslaunch train does in metrics.jsonl, activations too "
                   "with \"memory_breakdown\": true in the engine's configuration; what is "
                   "predicted comes from run.json.",
                   Width::kWhole);
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
  std::string rows;
  for (const MemoryRow& row : memory.rows) {
    rows += "<tr>" + Cell(row.category, "name") + Cell(bytes(row.predicted)) +
            Cell(bytes(row.measured)) + Cell(against(row.measured, row.predicted)) +
            "<td class=\"bars\">" + BarHtml({{part(row.predicted), "grey"}}) +
            BarHtml({{part(row.measured), "c0"}}) + "</td></tr>";
  }
  rows += "<tr class=\"total\">" + Cell("all", "name") +
          Cell(bytes(predicted > 0 ? predicted : kNotTold)) +
          Cell(bytes(measured > 0 ? measured : kNotTold)) +
          Cell(against(measured > 0 ? measured : kNotTold, predicted)) +
          "<td class=\"bars\"></td></tr>";
  std::string lead = "Of each category the most that any rank had.";
  if (std::ranges::any_of(memory.rows, [](const MemoryRow& row) {
        return row.category == "activations" && std::isnan(row.measured);
      }))
    lead +=
        " Activations are measured with \"memory_breakdown\": true in the engine's configuration.";
  if (predicted == 0) lead += " Nothing was predicted: no rank left a run.json with a memory_plan.";
  if (measured == 0) lead += " Nothing was measured: no rank told its memory in metrics.jsonl.";
  return Card(
      "memory", heading, Escaped(lead),
      "<ul class=\"legend\"><li><i class=\"grey\"></i>predicted</li><li><i class=\"c0\"></i>"
      "measured</li></ul>" +
          TableHtml({"Category", " Predicted", " Measured", " Difference", ""}, rows),
      Width::kWhole);
}

std::string StartsSection(const ReportData& data) {
  if (data.events.starts.size() < 2 && data.events.restarts.empty()) return "";
  std::string rows;
  for (const JobEvents::Start& start : data.events.starts) {
    const auto end =
        std::ranges::find(data.events.restarts, start.attempt, &JobEvents::Restart::attempt);
    std::string why;
    if (end != data.events.restarts.end()) {
      why = !end->cause.empty() ? end->cause : end->reason;
    } else if (start.attempt == data.events.starts.back().attempt) {
      why = data.state;
    }
    rows += "<tr>" + Cell(std::to_string(start.attempt)) +
            Cell(TimeText(static_cast<int64_t>(start.t * 1000))) +
            Cell(std::to_string(start.world_size)) + Cell(NameList(start.nodes, ", "), "name") +
            Cell(why, "name") + "</tr>";
  }
  return Card("starts", "Starts and restarts", "",
              TableHtml({" Start", " When", " Ranks", "Nodes", "How it ended"}, rows),
              Width::kWhole);
}

std::string TracesSection(const ReportData& data) {
  std::string rows;
  size_t traces = 0;
  for (const RankFiles& files : data.ranks) {
    if (files.trace_path.empty() || traces++ >= kMaxTraceRows) continue;
    rows += "<tr>" + Cell("rank " + std::to_string(files.rank), "name") + Cell(files.node, "name") +
            "<td class=\"name\"><code>" + Escaped(files.trace_path) + "</code></td>" +
            Cell(ShortBytes(static_cast<double>(files.trace_bytes))) + "</tr>";
  }
  if (traces == 0) return "";
  return Card(
      "traces", "Traces",
      "Every operator and message of the profiled steps, for <code>ui.perfetto.dev</code> or "
      "<code>chrome://tracing</code>.",
      TableHtml({"Rank", "Node", "File on that node", " Size"}, rows) +
          MoreText(traces, kMaxTraceRows, "trace"),
      Width::kWhole);
}

}  // namespace dslaunch
