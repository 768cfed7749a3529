#include "cli/report/report_compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/text_table.h"
#include "cli/report/report_html.h"
#include "cli/report/report_info.h"
#include "cli/report/report_plot.h"
#include "cli/report/report_style.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;
using Jobs = std::array<ReportData, 2>;
using TextOf = std::function<std::string(const ReportData&)>;
using NumberOf = std::function<double(const ReportData&)>;

constexpr int kMostPoints = 500;  // limit for one line of a plot
constexpr size_t kMostNamedNodes = 6;

// Seconds from the command to the first ranks, in attempts, and between attempts.
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

double Median(const ReportData& data, double MetricsPoint::*number) {
  return MedianOf(WindowsOf(data), number);
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

// Seconds of a mean rank in one bucket of goodput.
double BucketS(const ReportData& data, const std::string& bucket) {
  if (!data.events.goodput || !(data.events.goodput->ranks > 0)) return kNotRecorded;
  for (const auto& [name, seconds] : data.events.goodput->seconds) {
    if (name == bucket) return seconds / data.events.goodput->ranks;
  }
  return kNotRecorded;
}

// Names of all buckets of both jobs, in the order of the first job.
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

// One number of rank 0 of both jobs, as {"title", "unit", "jobs": [pieces, pieces]}.
Json LinesJson(const Jobs& jobs, const std::string& title, double MetricsPoint::*number) {
  Json lines = {{"title", title}, {"jobs", Json::array()}};
  for (const ReportData& data : jobs) {
    Json pieces = Json::array();
    for (const std::vector<PlotPoint>& piece : PiecesOf(data, number)) {
      Json points = Json::array();
      for (const auto& [x, y] : Thinned(piece, kMostPoints)) points.push_back({x, y});
      pieces.push_back(std::move(points));
    }
    lines["jobs"].push_back(std::move(pieces));
  }
  return lines;
}

std::string DocumentOf(const Jobs& jobs) {
  Json document = {{"jobs", Json::array()}, {"rows", Json::array()}, {"plots", Json::array()}};
  for (const ReportData& data : jobs)
    document["jobs"].push_back({{"id", data.job_id}, {"command", data.command}});
  for (const ComparedRow& row : CompareJobs(jobs)) {
    document["rows"].push_back(
        {{"name", row.name}, {"values", row.values}, {"change", row.change}});
  }
  document["plots"].push_back(LinesJson(jobs, "Loss", &MetricsPoint::loss));
  document["plots"].push_back(LinesJson(jobs, "Step time (s)", &MetricsPoint::step_s));
  std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  // Otherwise a text with "</script>" would end the element.
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;)
    text.replace(at, 1, "\\u003c");
  return text;
}

// Draws the document. Texts of the jobs become text nodes only, so they cannot add elements.
constexpr char kScript[] = R"(
const doc = JSON.parse(document.getElementById('data').textContent);
const main = document.querySelector('main');
const svgName = 'http://www.w3.org/2000/svg';
function add(parent, tag, text, attributes) {
  const node = parent.namespaceURI === svgName || tag === 'svg'
    ? document.createElementNS(svgName, tag) : document.createElement(tag);
  if (text) node.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  return parent.appendChild(node);
}
function card(title) {
  const section = add(main, 'section', '', {class: 'card wide'});
  add(section, 'h2', title);
  return section;
}
const header = add(main, 'header', '', {class: 'wide'});
add(header, 'h1', 'Two jobs');
const legend = add(header, 'ul', '', {class: 'legend'});
doc.jobs.forEach((job, i) => {
  const item = add(legend, 'li', '');
  add(item, 'i', '', {class: 'c' + i});
  item.appendChild(document.createTextNode(job.id + ': ' + job.command));
});
const table = add(add(card('Differences'), 'div', '', {class: 'scroll'}), 'table', '', {id: 'rows'});
const head = add(add(table, 'thead', ''), 'tr', '');
for (const name of ['', doc.jobs[0].id, doc.jobs[1].id, 'Change']) add(head, 'th', name);
const body = add(table, 'tbody', '');
for (const row of doc.rows) {
  const line = add(body, 'tr', '');
  for (const text of [row.name, ...row.values, row.change]) add(line, 'td', text || '–');
}
for (const plot of doc.plots) {
  const points = plot.jobs.flat(2);
  if (!points.length) continue;
  const [w, h, left, low] = [1080, 300, 70, 30];
  const range = axis => [Math.min(...points.map(p => p[axis])), Math.max(...points.map(p => p[axis]))];
  const [x0, x1] = range(0), [y0, y1] = range(1);
  const x = v => left + (w - left - 10) * (v - x0) / (x1 - x0 || 1);
  const y = v => h - low - (h - low - 10) * (v - y0) / (y1 - y0 || 1);
  const svg = add(card(plot.title), 'svg', '', {class: 'plot', viewBox: `0 0 ${w} ${h}`, role: 'img', 'aria-label': plot.title});
  for (let i = 0; i <= 4; ++i) {
    const value = y0 + (y1 - y0) * i / 4, step = x0 + (x1 - x0) * i / 4;
    add(svg, 'line', '', {class: 'grid', x1: left, x2: w - 10, y1: y(value), y2: y(value)});
    add(svg, 'text', value.toPrecision(4), {class: 'tick', x: left - 8, y: y(value) + 4, 'text-anchor': 'end'});
    add(svg, 'text', 'step ' + Math.round(step), {class: 'tick', x: x(step), y: h - 8, 'text-anchor': i < 4 ? 'start' : 'end'});
  }
  plot.jobs.forEach((pieces, i) => pieces.forEach(piece => add(svg, 'polyline', '',
    {class: 'line c' + i, points: piece.map(p => `${x(p[0])},${y(p[1])}`).join(' ')})));
}
)";

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
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
         "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>" +
         Escaped("dslaunch report: " + jobs[0].job_id + " and " + jobs[1].job_id) +
         "</title><style>" + kReportStyle + "</style></head>\n<body><main></main>\n" +
         "<script type=\"application/json\" id=\"data\">" + DocumentOf(jobs) + "</script>\n" +
         "<script>" + kScript + "</script></body></html>\n";
}

}  // namespace dslaunch
