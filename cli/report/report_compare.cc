#include "cli/report/report_compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/text_table.h"
#include "cli/report/report_document.h"
#include "cli/report/report_info.h"
#include "cli/report/report_text.h"

namespace dslaunch {
namespace {

using Jobs = std::array<ReportData, 2>;
using TextOf = std::function<std::string(const ReportData&)>;
using NumberOf = std::function<double(const ReportData&)>;

constexpr size_t kMostNamedNodes = 6;

// The times in seconds from the command to the first ranks, in attempts, and between attempts.
struct Phases {
  double start_s = kNotRecorded;
  double running_s = kNotRecorded;
  double restarting_s = kNotRecorded;
};

double EndOf(const ReportData& data) {
  return static_cast<double>(data.ended_unix_ms != 0 ? data.ended_unix_ms : data.made_unix_ms) /
         1000;
}

Phases PhasesOf(const ReportData& data) {
  Phases phases;
  const std::vector<JobEvents::Start>& starts = data.events.starts;
  if (starts.empty() || data.started_unix_ms == 0) return phases;
  phases.start_s =
      std::max(0.0, starts.front().t - static_cast<double>(data.started_unix_ms) / 1000);
  phases.running_s = phases.restarting_s = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto restart =
        std::ranges::find(data.events.restarts, starts[i].attempt, &JobEvents::Restart::attempt);
    const bool restarted = restart != data.events.restarts.end();
    const double end = restarted ? restart->t : EndOf(data);
    phases.running_s += std::max(0.0, end - starts[i].t);
    const double next = i + 1 < starts.size() ? starts[i + 1].t : end;
    phases.restarting_s += std::max(0.0, next - end);
  }
  return phases;
}

double DurationS(const ReportData& data) {
  if (data.started_unix_ms == 0) return kNotRecorded;
  return std::max(0.0, EndOf(data) - static_cast<double>(data.started_unix_ms) / 1000);
}

double LastLoss(const ReportData& data) {
  const std::vector<MetricsPoint> windows = WindowsOf(data);
  for (auto window = windows.rbegin(); window != windows.rend(); ++window) {
    if (!std::isnan(window->loss)) return window->loss;
  }
  return kNotRecorded;
}

double LastStep(const ReportData& data) {
  const std::vector<MetricsPoint> windows = WindowsOf(data);
  return windows.empty() ? kNotRecorded : static_cast<double>(windows.back().step);
}

// Returns the median of a number over all windows. Returns kNotRecorded for 0 too, because training
// on data other than text reports 0 tokens.
double Median(const ReportData& data, double MetricsPoint::*number) {
  const double median = MedianOf(WindowsOf(data), number);
  return median > 0 ? median : kNotRecorded;
}

double LastEvaluation(const ReportData& data, double EvalPoint::*number) {
  const std::vector<EvalPoint> evaluations = EvaluationsOf(data);
  return evaluations.empty() ? kNotRecorded : evaluations.back().*number;
}

double CountRanks(const ReportData& data) {
  if (!data.events.starts.empty()) return static_cast<double>(data.events.starts.back().world_size);
  const ReportedRun* const run = RunOf(data);
  return run == nullptr ? kNotRecorded : run->world_size;
}

std::string NodesText(const ReportData& data) {
  return std::to_string(data.nodes.size()) + ": " + NameList(data.nodes, ", ", kMostNamedNodes);
}

std::string ModelText(const ReportData& data) {
  const ReportedRun* const run = RunOf(data);
  if (run == nullptr) return "";
  return run->model + (run->dtype.empty() ? "" : ", " + run->dtype);
}

// Returns the seconds that an average rank spent in a bucket of goodput.
double BucketS(const ReportData& data, const std::string& bucket) {
  if (!data.events.goodput || !(data.events.goodput->ranks > 0)) return kNotRecorded;
  for (const auto& [name, seconds] : data.events.goodput->seconds) {
    if (name == bucket) return seconds / data.events.goodput->ranks;
  }
  return kNotRecorded;
}

// Returns the names of all buckets of both jobs, in the order of the first job.
std::vector<std::string> BucketsOf(const Jobs& jobs) {
  std::vector<std::string> names;
  for (const ReportData& data : jobs) {
    if (!data.events.goodput) continue;
    for (const auto& [name, seconds] : data.events.goodput->seconds) {
      if (std::ranges::count(names, name) == 0) names.push_back(name);
    }
  }
  return names;
}

std::string ChangeText(double before, double after) {
  if (std::isnan(before) || std::isnan(after) || before == 0) return "";
  const double percent = 100 * (after / before - 1);
  char text[32];
  std::snprintf(text, sizeof text, "%+.*f %%", std::abs(percent) < 10 ? 1 : 0, percent);
  return text;
}

class Rows {
 public:
  explicit Rows(const Jobs& jobs) : jobs_(jobs) {}

  void AddText(const std::string& name, const TextOf& text) {
    ComparedRow row = {name, {text(jobs_[0]), text(jobs_[1])}, ""};
    if (!row.values[0].empty() || !row.values[1].empty()) rows_.push_back(std::move(row));
  }
  void AddNumber(const std::string& name, const NumberOf& number, std::string (*format)(double)) {
    const double before = number(jobs_[0]), after = number(jobs_[1]);
    const auto shown = [&](double value) { return std::isnan(value) ? "" : format(value); };
    if (std::isnan(before) && std::isnan(after)) return;
    rows_.push_back({name, {shown(before), shown(after)}, ChangeText(before, after)});
  }
  std::vector<ComparedRow> Take() && { return std::move(rows_); }

 private:
  const Jobs& jobs_;
  std::vector<ComparedRow> rows_;
};

std::string LossText(double loss) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", loss);
  return text;
}

// Returns a plot of a number of rank 0 over the steps of both jobs; null if neither job has the
// number.
Json PlotOf(const Jobs& jobs, const std::string& id, const std::string& title,
            double MetricsPoint::*number, PlotNumber format) {
  Plot plot;
  plot.title = title + " by step";
  plot.height = 300;
  plot.number = format;
  for (size_t i = 0; i < jobs.size(); ++i) {
    Pieces pieces = PiecesOf(jobs[i], number);
    if (pieces.empty()) continue;
    plot.lines.push_back(
        {.name = jobs[i].job_id, .color = static_cast<int>(i), .pieces = std::move(pieces)});
  }
  return plot.lines.empty() ? Json() : Card(id, title, "", {PlotPart(plot)}, Width::kWhole);
}

Json DocumentOf(const Jobs& jobs) {
  Json document = {{"heading", "Two jobs"}, {"about", Json::array()}};
  for (const ReportData& data : jobs)
    document["about"].push_back(Json::array({data.job_id + ": ", Code(data.command)}));
  std::vector<Json> rows;
  for (const ComparedRow& row : CompareJobs(jobs)) {
    Json cells = Json::array({row.name});
    for (const std::string& value : row.values) cells.push_back(value.empty() ? "–" : value);
    cells.push_back(row.change);
    rows.push_back(std::move(cells));
  }
  AddTo(document,
        Card("rows", "Differences", "",
             {TablePart({"", jobs[0].job_id, jobs[1].job_id, " Change"}, std::move(rows))},
             Width::kWhole));
  AddTo(document, PlotOf(jobs, "loss", "Loss", &MetricsPoint::loss, PlotNumber::kShort));
  AddTo(document,
        PlotOf(jobs, "step_time", "Step time", &MetricsPoint::step_s, PlotNumber::kSeconds));
  return document;
}

}  // namespace

std::vector<ComparedRow> CompareJobs(const Jobs& jobs) {
  Rows rows(jobs);
  rows.AddText("State", [](const ReportData& data) { return data.state; });
  rows.AddText("Failure", [](const ReportData& data) { return data.events.cause; });
  rows.AddText("Model", ModelText);
  rows.AddText("Nodes", NodesText);
  rows.AddNumber("Ranks", CountRanks, ShortNumber);
  rows.AddNumber("Duration", DurationS, ShortSeconds);
  rows.AddNumber(
      "  until ranks start", [](const ReportData& d) { return PhasesOf(d).start_s; }, ShortSeconds);
  rows.AddNumber(
      "  ranks run", [](const ReportData& d) { return PhasesOf(d).running_s; }, ShortSeconds);
  rows.AddNumber(
      "  between attempts", [](const ReportData& d) { return PhasesOf(d).restarting_s; },
      ShortSeconds);
  for (const std::string& bucket : BucketsOf(jobs)) {
    std::string words = bucket;
    std::ranges::replace(words, '_', ' ');
    rows.AddNumber(
        "  a rank's time: " + words, [&](const ReportData& d) { return BucketS(d, bucket); },
        ShortSeconds);
  }
  rows.AddNumber(
      "Restarts", [](const ReportData& d) { return static_cast<double>(d.events.restarts.size()); },
      ShortNumber);
  rows.AddNumber("Last step", LastStep, ShortNumber);
  rows.AddNumber(
      "Step time, median", [](const ReportData& d) { return Median(d, &MetricsPoint::step_s); },
      ShortSeconds);
  rows.AddNumber(
      "Steps/s, median", [](const ReportData& d) { return 1 / Median(d, &MetricsPoint::step_s); },
      ShortNumber);
  rows.AddNumber(
      "Samples/s, median",
      [](const ReportData& d) { return Median(d, &MetricsPoint::samples_per_s); }, ShortNumber);
  rows.AddNumber(
      "Tokens/s, median",
      [](const ReportData& d) { return Median(d, &MetricsPoint::tokens_per_s); }, ShortNumber);
  rows.AddNumber(
      "MFU, median", [](const ReportData& d) { return Median(d, &MetricsPoint::mfu); }, Percent);
  rows.AddNumber("Last loss", LastLoss, LossText);
  rows.AddNumber(
      "Evaluation loss", [](const ReportData& d) { return LastEvaluation(d, &EvalPoint::loss); },
      LossText);
  rows.AddNumber(
      "Accuracy", [](const ReportData& d) { return LastEvaluation(d, &EvalPoint::accuracy); },
      AccuracyText);
  rows.AddNumber(
      "Peak memory", [](const ReportData& d) { return MemoryOf(d).peak_rss; }, ShortBytes);
  return std::move(rows).Take();
}

std::string ComparisonText(const Jobs& jobs) {
  std::vector<std::vector<std::string>> lines = {{"", jobs[0].job_id, jobs[1].job_id, "change"}};
  for (const ComparedRow& row : CompareJobs(jobs)) {
    const auto shown = [](const std::string& value) {
      return value.empty() ? std::string("-") : SanitizeForTerminal(value);
    };
    lines.push_back({row.name, shown(row.values[0]), shown(row.values[1]), row.change});
  }
  return TextTable(lines);
}

std::string ComparisonPage(const Jobs& jobs) {
  return PageOf("dslaunch report: " + jobs[0].job_id + " and " + jobs[1].job_id, DocumentOf(jobs));
}

}  // namespace dslaunch
