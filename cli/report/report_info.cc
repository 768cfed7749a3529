#include "cli/report/report_info.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "cli/report/report_text.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxEpochMarks = 12;
constexpr size_t kMaxCategories = 64;

double Times(double number, double factor) { return std::isnan(number) ? number : number * factor; }

// Returns the files of a rank, one entry for each start of the rank.
std::vector<const RankFiles*> StartsOf(const ReportData& data, uint32_t rank) {
  std::vector<const RankFiles*> starts;
  for (const RankFiles& files : data.ranks) {
    const bool is_again = !starts.empty() && starts.back()->attempt == files.attempt;
    if (files.rank == rank && files.metrics && !is_again) starts.push_back(&files);
  }
  return starts;
}

// Returns the files with profiles of the last start that has any profile.
std::vector<const RankFiles*> ProfiledRanks(const ReportData& data) {
  std::vector<const RankFiles*> profiled;
  for (const RankFiles& files : data.ranks) {
    if (!files.profile) continue;
    if (!profiled.empty() && profiled.back()->attempt != files.attempt) profiled.clear();
    profiled.push_back(&files);
  }
  return profiled;
}

std::vector<RankPace> PacesOf(const ReportData& data, uint64_t attempt, bool& own_work_known) {
  std::vector<RankPace> paces;
  own_work_known = false;
  for (const RankFiles& files : data.ranks) {
    if (files.attempt != attempt || !files.metrics) continue;
    RankPace pace{files.rank, files.node};
    pace.step_s = MedianOf(files.metrics->points, &MetricsPoint::step_s);
    pace.own_s = MedianOf(files.metrics->points, &MetricsPoint::compute_s);
    own_work_known = own_work_known || !std::isnan(pace.own_s);
    paces.push_back(std::move(pace));
  }
  for (RankPace& pace : paces) {
    if (!own_work_known) pace.own_s = pace.step_s;
  }
  std::erase_if(paces, [](const RankPace& pace) { return std::isnan(pace.own_s); });
  return paces;
}

template <class Point>
void AddPiece(const std::vector<Point>& points, double Point::*number, Pieces& pieces) {
  std::vector<PlotPoint> piece;
  for (const Point& point : points) {
    if (!std::isnan(point.*number))
      piece.emplace_back(static_cast<double>(point.step), point.*number);
  }
  std::ranges::stable_sort(piece, {}, &PlotPoint::first);
  if (!piece.empty()) pieces.push_back(std::move(piece));
}

}  // namespace

double MedianOf(std::vector<double> numbers) {
  std::erase_if(numbers, [](double number) { return std::isnan(number); });
  if (numbers.empty()) return kNotRecorded;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>((numbers.size() - 1) / 2);
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

double MedianOf(const std::vector<MetricsPoint>& points, double MetricsPoint::*number) {
  std::vector<double> numbers;
  numbers.reserve(points.size());
  for (const MetricsPoint& point : points) numbers.push_back(point.*number);
  return MedianOf(std::move(numbers));
}

std::optional<JobPace> PaceOf(const ReportData& data) {
  std::set<uint64_t> attempts;
  for (const RankFiles& files : data.ranks) attempts.insert(files.attempt);
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    JobPace job;
    job.attempt = *attempt;
    job.ranks = PacesOf(data, *attempt, job.own_work_known);
    if (job.ranks.empty()) continue;
    std::vector<double> times;
    for (const RankPace& pace : job.ranks) times.push_back(pace.own_s);
    job.median_s = MedianOf(std::move(times));
    for (RankPace& pace : job.ranks) {
      pace.slower = job.median_s > 0 ? pace.own_s / job.median_s - 1 : 0;
      pace.straggler = pace.slower > kStragglerSlower && pace.own_s >= kLeastStragglerS;
    }
    std::ranges::stable_sort(job.ranks, std::greater(), &RankPace::own_s);
    return job;
  }
  return std::nullopt;
}

Pieces PiecesOf(const ReportData& data, uint32_t rank, double MetricsPoint::*number) {
  Pieces pieces;
  for (const RankFiles* files : StartsOf(data, rank))
    AddPiece(files->metrics->points, number, pieces);
  return pieces;
}

Pieces PiecesOf(const ReportData& data, double EvalPoint::*number) {
  Pieces pieces;
  for (const RankFiles* files : StartsOf(data, 0)) AddPiece(files->metrics->evals, number, pieces);
  return pieces;
}

Pieces OtherResultsOf(const ReportData& data, const std::string& name) {
  Pieces pieces;
  for (const RankFiles* files : StartsOf(data, 0)) {
    std::vector<PlotPoint> piece;
    for (const EvalPoint& eval : files->metrics->evals) {
      for (const auto& [other, number] : eval.others) {
        if (other == name) piece.emplace_back(static_cast<double>(eval.step), number);
      }
    }
    std::ranges::stable_sort(piece, {}, &PlotPoint::first);
    if (!piece.empty()) pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<EvalPoint> EvaluationsOf(const ReportData& data) {
  std::vector<EvalPoint> all;
  for (const RankFiles* files : StartsOf(data, 0))
    all.insert(all.end(), files->metrics->evals.begin(), files->metrics->evals.end());
  return all;
}

Pieces PiecesOf(const ReportData& data, double MetricsPoint::*number) {
  return PiecesOf(data, 0, number);
}

std::vector<Plot::Mark> MarksOf(const ReportData& data) {
  std::vector<Plot::Mark> restarts, epochs;
  double epoch = kNotRecorded;
  bool is_first = true;
  for (const RankFiles* files : StartsOf(data, 0)) {
    const std::vector<MetricsPoint>& points = files->metrics->points;
    if (points.empty()) continue;
    if (!std::exchange(is_first, false)) {
      restarts.push_back({static_cast<double>(points.front().step),
                          "restart " + std::to_string(restarts.size() + 1), true});
    }
    for (const MetricsPoint& point : points) {
      if (point.data_epoch > epoch) {
        epochs.push_back(
            {static_cast<double>(point.step), "epoch " + ShortNumber(point.data_epoch)});
      }
      epoch = std::isnan(epoch) ? point.data_epoch : std::fmax(epoch, point.data_epoch);
    }
  }
  if (epochs.size() <= kMaxEpochMarks)
    restarts.insert(restarts.end(), epochs.begin(), epochs.end());
  std::ranges::stable_sort(restarts, {}, &Plot::Mark::x);
  return restarts;
}

std::vector<MetricsPoint> WindowsOf(const ReportData& data) {
  std::vector<MetricsPoint> windows;
  for (const RankFiles* files : StartsOf(data, 0))
    windows.insert(windows.end(), files->metrics->points.begin(), files->metrics->points.end());
  return windows;
}

std::vector<ReportedOperator> OperatorsOf(const ReportData& data) {
  const std::vector<const RankFiles*> profiled = ProfiledRanks(data);
  std::map<std::string, ReportedOperator> by_name;
  double all_s = 0;
  for (const RankFiles* files : profiled) {
    const double part = 1 / (files->profile->steps * static_cast<double>(profiled.size()));
    for (const RankProfile::Operator& one : files->profile->operators) {
      ReportedOperator& row = by_name[one.name];
      row.name = one.name;
      row.calls += one.calls * part;
      row.self_s += one.self_s * part;
      all_s += one.self_s * part;
      if (!std::isnan(one.self_bytes))
        row.self_bytes = (std::isnan(row.self_bytes) ? 0 : row.self_bytes) + one.self_bytes * part;
    }
  }
  std::vector<ReportedOperator> rows;
  for (auto& [name, row] : by_name) {
    row.share = all_s > 0 ? row.self_s / all_s : 0;
    rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(rows, std::greater(), &ReportedOperator::self_s);
  return rows;
}

std::optional<CommunicationInfo> CommunicationOf(const ReportData& data) {
  std::vector<const RankFiles*> profiled = ProfiledRanks(data);
  std::erase_if(profiled,
                [](const RankFiles* files) { return std::isnan(files->profile->communication_s); });
  if (profiled.empty()) return std::nullopt;
  CommunicationInfo info;
  std::map<std::string, RankProfile::Communication> by_kind;
  std::vector<double> steps;
  for (const RankFiles* files : profiled) {
    const RankProfile& profile = *files->profile;
    const double total = profile.communication_s / profile.steps;
    const double hidden =
        std::isnan(profile.hidden_s) ? 0 : std::min(profile.hidden_s / profile.steps, total);
    info.ranks.push_back({files->rank, total, hidden});
    const double part = 1 / static_cast<double>(profiled.size());
    info.total_s += total * part;
    info.hidden_s += hidden * part;
    steps.push_back(Times(profile.wall_s, 1 / profile.steps));
    for (const RankProfile::Communication& one : profile.kinds) {
      RankProfile::Communication& kind = by_kind[one.kind];
      kind.kind = one.kind;
      kind.calls += one.calls / profile.steps * part;
      kind.bytes += one.bytes / profile.steps * part;
      kind.s += one.s / profile.steps * part;
    }
  }
  info.step_s = MedianOf(std::move(steps));
  for (auto& [name, kind] : by_kind) info.kinds.push_back(std::move(kind));
  std::ranges::stable_sort(info.kinds, std::greater(), &RankProfile::Communication::s);
  return info;
}

MemoryInfo MemoryOf(const ReportData& data) {
  MemoryInfo info;
  const auto row = [&](const std::string& category) -> MemoryRow& {
    const auto found = std::ranges::find(info.rows, category, &MemoryRow::category);
    if (found != info.rows.end()) return *found;
    // The number of rows is limited, so further categories share the last row. Real programs have
    // fewer categories.
    if (info.rows.size() == kMaxCategories) return info.rows.back();
    return info.rows.emplace_back(MemoryRow{category});
  };
  if (const ReportedRun* run = RunOf(data)) {
    for (const auto& [category, bytes] : run->memory_plan) row(category).predicted = bytes;
  }
  for (const RankFiles& files : data.ranks) {
    if (!files.metrics) continue;
    for (const auto& [category, bytes] : files.metrics->memory) {
      // "tensors" is not a category, but the maximum of the sum of all categories.
      if (category == "tensors") continue;
      double& most = category == "peak_rss" ? info.peak_rss : row(category).measured;
      most = std::fmax(most, bytes);
    }
  }
  for (MemoryRow& one : info.rows) {
    if (one.measured == 0 && one.predicted > 0) one.measured = kNotRecorded;
  }
  return info;
}

const ReportedRun* RunOf(const ReportData& data) {
  const ReportedRun* run = nullptr;
  for (const RankFiles& files : data.ranks) {
    if (files.run) run = &*files.run;
  }
  return run;
}

}  // namespace dslaunch
