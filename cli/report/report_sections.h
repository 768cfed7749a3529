// The sections of a report, each an HTML element with an id; empty if there is nothing to show.
// Pure except for the time zone.
#pragma once

#include <string>

#include "cli/report/report_data.h"

namespace dslaunch {

// report_sections.cc: values of rank 0 over the steps
std::string LossSection(const ReportData& data);
std::string AccuracySection(const ReportData& data);
// Values of evaluations besides loss, accuracy and perplexity: a table, and a plot of each value
// that was measured more than once.
std::string OtherResultsSection(const ReportData& data);
std::string LearningRateSection(const ReportData& data);
std::string GradientNormSection(const ReportData& data);
std::string LossScaleSection(const ReportData& data);
std::string ThroughputSection(const ReportData& data);
std::string MfuSection(const ReportData& data);

// report_step_time.cc
std::string StepTimeSection(const ReportData& data);

// report_tables.cc
std::string OperatorsSection(const ReportData& data);
std::string CommunicationSection(const ReportData& data);
std::string MemorySection(const ReportData& data);
std::string GoodputSection(const ReportData& data);
std::string PreflightSection(const ReportData& data);
std::string StartsSection(const ReportData& data);
std::string TracesSection(const ReportData& data);

}  // namespace dslaunch
