// What a report says of its data: which rank is slow, what took the time, what memory was expected.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/report_data.h"
#include "cli/report/report_plot.h"

namespace dslaunch {

// A rank whose own work takes this much longer than that of the median rank is a straggler, unless
// it takes so little that this is how processes are scheduled.
inline constexpr double kStragglerSlower = 0.1;
inline constexpr double kLeastStragglerS = 0.02;

// The usual step of each rank in one start of the job: medians over its windows.
struct RankPace {
  uint32_t rank = 0;
  std::string node;
  double step_s = kNotRecorded;
  double own_s = 0;   // compute_s, or all of the step where no rank tells that
  double slower = 0;  // than the median rank: 0.31 is 31% more time
  bool straggler = false;
};
struct JobPace {
  uint64_t attempt = 1;
  bool own_work_known = false;
  double median_s = 0;  // of own_s; of an even number the lower one, so that of two one can be slow
  std::vector<RankPace> ranks;  // the slowest first
};

// Of the last start from which at least one rank told times; nullopt when none did.
std::optional<JobPace> PaceOf(const ReportData& data);

// One number of rank 0 along the steps: a piece for each start of the job, in order of steps.
// Numbers that were not told are left out.
using Pieces = std::vector<std::vector<PlotPoint>>;
Pieces PiecesOf(const ReportData& data, double MetricsPoint::*number);
// The same of any rank.
Pieces PiecesOf(const ReportData& data, uint32_t rank, double MetricsPoint::*number);

// One number of rank 0's evaluations, likewise.
Pieces PiecesOf(const ReportData& data, double EvalPoint::*number);
// What else they measured under that name.
Pieces OtherResultsOf(const ReportData& data, const std::string& name);
// All of rank 0's evaluations, start by start.
std::vector<EvalPoint> EvaluationsOf(const ReportData& data);

// Where the job was started again, and where a pass over the data began.
std::vector<Plot::Mark> MarksOf(const ReportData& data);

// All of rank 0's windows, start by start.
std::vector<MetricsPoint> WindowsOf(const ReportData& data);

// Means over the profiled ranks, for one step.
struct OperatorRow {
  std::string name;
  double calls = 0;
  double self_s = 0;
  double share = 0;  // of the self time of all operators
  double self_bytes = kNotRecorded;
};
// The one that takes most time first.
std::vector<OperatorRow> OperatorsOf(const ReportData& data);

struct CommunicationInfo {
  struct Rank {
    uint32_t rank = 0;
    double total_s = 0;  // for one step
    double hidden_s = 0;
  };
  std::vector<Rank> ranks;
  double total_s = 0;  // mean over the ranks, for one step
  double hidden_s = 0;
  double step_s = kNotRecorded;
  std::vector<RankProfile::Communication> kinds;  // likewise; most time first
  double HiddenShare() const { return total_s > 0 ? hidden_s / total_s : kNotRecorded; }
};
// nullopt when no profile tells of communication.
std::optional<CommunicationInfo> CommunicationOf(const ReportData& data);

// Bytes of a rank by category: the plan's, and the most that was measured on any rank. kNotRecorded
// where only one of the two has the category, or nothing of what was planned was seen: it was not
// looked for.
struct MemoryRow {
  std::string category;
  double predicted = kNotRecorded;
  double measured = kNotRecorded;
};
struct MemoryInfo {
  std::vector<MemoryRow> rows;
  double peak_rss = kNotRecorded;  // of a process, all that it uses
};
MemoryInfo MemoryOf(const ReportData& data);

// The last one that a rank wrote.
const RunInfo* RunOf(const ReportData& data);

// Of what is no NaN; of an even number the lower one. kNotRecorded for none.
double MedianOf(std::vector<double> numbers);
double MedianOf(const std::vector<MetricsPoint>& points, double MetricsPoint::*number);

}  // namespace dslaunch
