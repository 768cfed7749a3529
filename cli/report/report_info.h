// Evaluates the data of a report: slow ranks, the time of operators and communication, and
// predicted and measured memory. All functions are pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/report_data.h"
#include "cli/report/report_plot.h"

namespace dslaunch {

// A rank is a straggler if its own work takes at least kLeastStragglerS seconds, and exceeds the
// median rank's work by more than the fraction kStragglerSlower. Process scheduling explains the
// differences between shorter steps.
inline constexpr double kStragglerSlower = 0.1;
inline constexpr double kLeastStragglerS = 0.02;

// The typical step of a rank in one start of the job; times are medians over its windows.
struct RankPace {
  uint32_t rank = 0;
  std::string node;
  double step_s = kNotRecorded;
  double own_s = 0;   // compute_s, or step_s if no rank reports compute_s
  double slower = 0;  // slowdown relative to the median rank: 0.31 is 31% more time
  bool straggler = false;
};
struct JobPace {
  uint64_t attempt = 1;
  bool own_work_known = false;
  // Median of own_s; the lower middle value of an even number, so that one of two ranks can be
  // slow.
  double median_s = 0;
  std::vector<RankPace> ranks;  // ranks sorted by own_s, the slowest rank first
};

// Returns the pace of the last start in which a rank reported times; nullopt if no rank ever did.
std::optional<JobPace> PaceOf(const ReportData& data);

// The values of a number over the steps: a piece for each start of the job, sorted by step, without
// missing values.
using Pieces = std::vector<std::vector<PlotPoint>>;

// Returns the values of `number`, a field of MetricsPoint, on rank 0.
Pieces PiecesOf(const ReportData& data, double MetricsPoint::*number);

// Returns the values of `number`, a field of MetricsPoint, on the given rank.
Pieces PiecesOf(const ReportData& data, uint32_t rank, double MetricsPoint::*number);

// Returns the values of `number`, a field of EvalPoint, in the evaluations of rank 0.
Pieces PiecesOf(const ReportData& data, double EvalPoint::*number);

// Returns the values of `name`, one of EvalPoint::others, in the evaluations of rank 0.
Pieces OtherResultsOf(const ReportData& data, const std::string& name);
// Returns all evaluations of rank 0, ordered by the start of the job.
std::vector<EvalPoint> EvaluationsOf(const ReportData& data);

// Returns marks for restarts of the job and for the beginnings of passes over the data.
std::vector<Plot::Mark> MarksOf(const ReportData& data);

// Returns all windows of rank 0, ordered by the start of the job.
std::vector<MetricsPoint> WindowsOf(const ReportData& data);

// The time of an operator. All values are means over the profiled ranks, per step.
struct ReportedOperator {
  std::string name;
  double calls = 0;
  double self_s = 0;
  double share = 0;  // fraction of the self time of all operators
  double self_bytes = kNotRecorded;
};
// Returns the operators, the slowest operator first.
std::vector<ReportedOperator> OperatorsOf(const ReportData& data);

struct CommunicationInfo {
  struct Rank {
    uint32_t rank = 0;
    double total_s = 0;  // time in communication, in seconds per step
    double hidden_s = 0;
  };
  std::vector<Rank> ranks;
  double total_s = 0;  // mean communication time of the ranks, in seconds per step
  double hidden_s = 0;
  double step_s = kNotRecorded;
  // Kinds of communication, the slowest kind first. Values are means over the ranks, per step.
  std::vector<RankProfile::Communication> kinds;
  double HiddenShare() const { return total_s > 0 ? hidden_s / total_s : kNotRecorded; }
};
// Returns the time of communication; nullopt if no profile contains communication.
std::optional<CommunicationInfo> CommunicationOf(const ReportData& data);

// The memory of a rank in a category, in bytes: the planned amount, and the maximum measured on any
// rank. A value is kNotRecorded if the category is missing in the plan or in the measurements, or
// if no planned category was measured.
struct MemoryRow {
  std::string category;
  double predicted = kNotRecorded;
  double measured = kNotRecorded;
};
struct MemoryInfo {
  std::vector<MemoryRow> rows;
  double peak_rss = kNotRecorded;  // largest resident set of a process
};

// Returns the planned and the measured memory of the ranks; without rows if neither was recorded.
MemoryInfo MemoryOf(const ReportData& data);

// Returns the last run.json that a rank wrote; null if none did.
const ReportedRun* RunOf(const ReportData& data);

// Returns the median of the values that are not NaN, which is the lower middle value of an even
// number; kNotRecorded if all are NaN.
double MedianOf(std::vector<double> numbers);

// Returns the median of a field of the points, as for the values of that field.
double MedianOf(const std::vector<MetricsPoint>& points, double MetricsPoint::*number);

}  // namespace dslaunch
