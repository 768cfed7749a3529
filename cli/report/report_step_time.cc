#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/count.h"
#include "cli/report/report_info.h"
#include "cli/report/report_sections.h"
#include "cli/report/report_text.h"

namespace dslaunch {
namespace {

// Largest number of ranks with a line each. More ranks are drawn as a band, with lines for the
// slowest ranks.
constexpr size_t kMaxRankLines = 8;
constexpr size_t kMaxSlowLines = 3;
// Windows slower than this multiple of the usual step are not plotted.
constexpr double kBeyond = 1.75;

std::string NodeOf(const RankPace& pace) { return pace.node.empty() ? "" : " (" + pace.node + ")"; }

Json PaceLead(const JobPace& pace) {
  const std::string what = pace.own_work_known ? "own work" : "step";
  if (pace.ranks.size() < 2) {
    return Json::array({"Only rank " + std::to_string(pace.ranks.front().rank) +
                        " recorded its times, so there is nothing to compare it with."});
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
    if (pace.ranks.front().slower > kStragglerSlower) {
      return Json::array({median + ". Ranks differ, but by less than matters: below " +
                          ShortSeconds(kLeastStragglerS) +
                          " that is how processes are scheduled."});
    }
    return Json::array({median + "; no rank takes " + Percent(kStragglerSlower) + " more."});
  }
  return Json::array(
      {median + ". ",
       Strong((slow.size() == 1 ? "A straggler: " : "Stragglers: ") + NameList(slow, "; ", 4) +
              "."),
       pace.own_work_known ? " The others wait for it at the end of each step." : ""});
}

// Draws a line for each rank. With many ranks, draws a band for most ranks and lines for the
// slowest.
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

Json PaceTable(const JobPace& pace) {
  double longest = 0;
  for (const RankPace& rank : pace.ranks)
    longest = std::max({longest, rank.own_s, std::isnan(rank.step_s) ? 0 : rank.step_s});
  std::vector<Json> rows;
  for (size_t i = 0; i < std::min(pace.ranks.size(), kMaxRankRows); ++i) {
    const RankPace& rank = pace.ranks[i];
    const double waits = std::isnan(rank.step_s) ? 0 : std::max(rank.step_s - rank.own_s, 0.0);
    const double scale = longest > 0 ? 1 / longest : 0;
    const std::string name = "rank " + std::to_string(rank.rank) + NodeOf(rank);
    Json row = Json::array();
    row.push_back(rank.straggler ? Json::array({name + " ", Strong("straggler")}) : Json(name));
    row.push_back(ShortSeconds(rank.own_s));
    if (pace.own_work_known) row.push_back(std::isnan(rank.step_s) ? "" : ShortSeconds(waits));
    row.push_back(SignedPercent(rank.slower));
    row.push_back(
        BarsCell({{{rank.own_s * scale, rank.straggler ? "c6" : "c0"}, {waits * scale, "grey"}}}));
    rows.push_back(std::move(row));
  }
  std::vector<std::string> columns = {"Rank", pace.own_work_known ? " Own work" : " Step"};
  if (pace.own_work_known) columns.push_back(" Waits");
  columns.insert(columns.end(), {" Against the median rank", ""});
  return TablePart(columns, std::move(rows), MoreText(pace.ranks.size(), kMaxRankRows, "rank"));
}

}  // namespace

Json StepTimeSection(const ReportData& data) {
  const std::string heading = "Step time by rank";
  const std::optional<JobPace> pace = PaceOf(data);
  if (!pace) {
    return !WindowsOf(data).empty()
               ? Missing("step_time", heading,
                         "No rank recorded step_s or compute_s in its metrics.jsonl.")
               : Json();
  }
  double MetricsPoint::*const number =
      pace->own_work_known ? &MetricsPoint::compute_s : &MetricsPoint::step_s;
  Plot plot;
  plot.title = heading;
  plot.unit = pace->own_work_known ? "own work in a step" : "a step";
  plot.number = PlotNumber::kSeconds;
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
  Json lead = PaceLead(*pace);
  if (beyond > 0 && plot.y_limit > 0) {
    lead.push_back(" " + Count(beyond, "window") + " took longer than the plot shows, up to " +
                   ShortSeconds(longest) + ".");
  }
  const std::string over = data.events.starts.size() > 1
                               ? "Medians since start " + std::to_string(pace->attempt)
                               : "Medians over the run";
  return Card("step_time", heading, std::move(lead),
              {PlotPart(plot), HeadingPart(over), PaceTable(*pace)}, Width::kWhole);
}

}  // namespace dslaunch
