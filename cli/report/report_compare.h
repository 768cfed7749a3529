// Compares two jobs side by side. All functions are pure.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cli/report/report_data.h"

namespace dslaunch {

// A property of both jobs in the comparison.
struct ComparedRow {
  std::string name;
  // Values of both jobs; empty if a job did not record the property.
  std::array<std::string, 2> values;
  // Change from the first job to the second, such as "-12 %"; empty if the property is not a
  // number.
  std::string change;
};

// Returns the rows that at least one job has: state, nodes, ranks, the duration of each phase,
// steps, losses, evaluation, throughput, memory, restarts, failure.
std::vector<ComparedRow> CompareJobs(const std::array<ReportData, 2>& jobs);

// Returns the comparison as a text table.
std::string ComparisonText(const std::array<ReportData, 2>& jobs);

// Returns the comparison as an HTML page. The page contains a JSON document with the rows, and the
// losses and step times of both jobs, and a script that draws the document.
std::string ComparisonPage(const std::array<ReportData, 2>& jobs);

}  // namespace dslaunch
