// Evaluates the data of a report: the slow ranks, the time of operators and communication, and
// predicted and measured memory. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/report_data.h"
#include "cli/report/report_plot.h"

namespace dslaunch {

// A rank is a straggler if its own work takes longer than the median rank's by this part, unless
// the difference is so small that process scheduling explains it.
inline constexpr double kStragglerSlower = 0.1;
inline constexpr double kLeastStragglerS = 0.02;

// The typical step of each rank in one start of the job: medians over its windows.
struct RankPace {
  uint32_t rank = 0;
  std::string node;
  double step_s = kNotRecorded;
  double own_s = 0;   // compute_s, or the whole step if no rank reports that
  double slower = 0;  // relative to the median rank: 0.31 is 31% more time
  bool straggler = false;
};
struct JobPace {
  uint64_t attempt = 1;
  bool own_work_known = false;
  double median_s = 0;  // median of own_s; the lower middle value of an even number, so that one of
                        // two ranks can be slow
  std::vector<RankPace> ranks;  // the slowest first
};

// Returns the pace of the last start in which a rank reported times; nullopt if there is none.
std::optional<JobPace> PaceOf(const ReportData& data);

// Returns one number of rank 0 over the steps, with a piece for each start of the job, in order of
// steps. Omits missing values.
using Pieces = std::vector<std::vector<PlotPoint>>;
Pieces PiecesOf(const ReportData& data, double MetricsPoint::*number);
// Returns one number of any rank, in the same form.
Pieces PiecesOf(const ReportData& data, uint32_t rank, double MetricsPoint::*number);

// Returns one number of rank 0's evaluations, in the same form.
Pieces PiecesOf(const ReportData& data, double EvalPoint::*number);
// Returns the other measured value `name` of the evaluations.
Pieces OtherResultsOf(const ReportData& data, const std::string& name);
// Returns all evaluations of rank 0, start by start.
std::vector<EvalPoint> EvaluationsOf(const ReportData& data);

// Returns marks for restarts of the job and for the starts of passes over the data.
std::vector<Plot::Mark> MarksOf(const ReportData& data);

// Returns all windows of rank 0, start by start.
std::vector<MetricsPoint> WindowsOf(const ReportData& data);

// Means over the profiled ranks, per step.
struct ReportedOperator {
  std::string name;
  double calls = 0;
  double self_s = 0;
  double share = 0;  // fraction of the self time of all operators
  double self_bytes = kNotRecorded;
};
// Returns the operators, the slowest first.
std::vector<ReportedOperator> OperatorsOf(const ReportData& data);

struct CommunicationInfo {
  struct Rank {
    uint32_t rank = 0;
    double total_s = 0;  // per step
    double hidden_s = 0;
  };
  std::vector<Rank> ranks;
  double total_s = 0;  // mean over the ranks, per step
  double hidden_s = 0;
  double step_s = kNotRecorded;
  // Means over the ranks, per step; the slowest first.
  std::vector<RankProfile::Communication> kinds;
  double HiddenShare() const { return total_s > 0 ? hidden_s / total_s : kNotRecorded; }
};
// Returns nullopt if no profile has communication.
std::optional<CommunicationInfo> CommunicationOf(const ReportData& data);

// Memory of a rank by category, in bytes: planned, and the maximum measured on any rank.
// kNotRecorded if the category is missing in one of the two, or if no planned category was
// measured.
struct MemoryRow {
  std::string category;
  double predicted = kNotRecorded;
  double measured = kNotRecorded;
};
struct MemoryInfo {
  std::vector<MemoryRow> rows;
  double peak_rss = kNotRecorded;  // maximum of a process
};
MemoryInfo MemoryOf(const ReportData& data);

// Returns the last run.json that a rank wrote.
const ReportedRun* RunOf(const ReportData& data);

// Returns the median of the values that are not NaN; the lower middle value of an even number;
// kNotRecorded if there are none.
double MedianOf(std::vector<double> numbers);
double MedianOf(const std::vector<MetricsPoint>& points, double MetricsPoint::*number);

}  // namespace dslaunch
