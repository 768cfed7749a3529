// Two jobs side by side. Pure.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cli/report/report_data.h"

namespace dslaunch {

// One property of both jobs.
struct ComparedRow {
  std::string name;
  std::array<std::string, 2> values;  // empty if a job did not record it
  std::string change;                 // "-12 %" of the second; empty if it is not a number
};

// Returns the rows that at least one job has: state, nodes, ranks, how long each phase took, steps,
// losses, evaluation, throughput, memory, restarts, failure.
std::vector<ComparedRow> CompareJobs(const std::array<ReportData, 2>& jobs);

// Returns the rows as a table.
std::string ComparisonText(const std::array<ReportData, 2>& jobs);

// Returns a page with one JSON document, which a script in it draws: the rows, and the losses and
// step times of both jobs.
std::string ComparisonPage(const std::array<ReportData, 2>& jobs);

}  // namespace dslaunch
