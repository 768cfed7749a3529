// The sections of a report, each a card or an entry of Missing() (report_document.h), or a list of
// these; null if there is nothing to show. Pure except for the time zone.
#pragma once

#include "cli/report/report_data.h"
#include "cli/report/report_document.h"

namespace dslaunch {

// report_sections.cc: values of rank 0 over the steps
Json LossSection(const ReportData& data);
Json AccuracySection(const ReportData& data);
// Values of evaluations besides loss, accuracy and perplexity: a table, and a plot of each value
// that was measured more than once.
Json OtherResultsSection(const ReportData& data);
Json LearningRateSection(const ReportData& data);
Json GradientNormSection(const ReportData& data);
Json LossScaleSection(const ReportData& data);
Json ThroughputSection(const ReportData& data);
Json MfuSection(const ReportData& data);

// report_step_time.cc
Json StepTimeSection(const ReportData& data);

// report_tables.cc
Json OperatorsSection(const ReportData& data);
Json CommunicationSection(const ReportData& data);
Json MemorySection(const ReportData& data);
// The verdict of each hang, with the stacks of the ranks.
Json HangsSection(const ReportData& data);
Json GoodputSection(const ReportData& data);
Json PreflightSection(const ReportData& data);
Json StartsSection(const ReportData& data);
Json TracesSection(const ReportData& data);

}  // namespace dslaunch
