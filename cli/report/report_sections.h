// Builds the sections of a report. Each section is a card, an entry of Missing()
// (report_document.h), or a list of these; null if there is nothing to show. The functions have no
// side effects, but depend on the time zone.
#pragma once

#include "cli/report/report_data.h"
#include "cli/report/report_document.h"

namespace dslaunch {

// Returns the training and evaluation losses of rank 0 over the steps. This function and the next
// seven are in report_sections.cc.
Json LossSection(const ReportData& data);
Json AccuracySection(const ReportData& data);
// Returns the values of evaluations other than loss, accuracy and perplexity: a table, and a plot
// of each value that was measured more than once.
Json OtherResultsSection(const ReportData& data);
Json LearningRateSection(const ReportData& data);
Json GradientNormSection(const ReportData& data);
Json LossScaleSection(const ReportData& data);
Json ThroughputSection(const ReportData& data);
Json MfuSection(const ReportData& data);

// Returns the step times of the ranks (report_step_time.cc).
Json StepTimeSection(const ReportData& data);

// Returns a table with the time of each operator. This function and those below are in
// report_tables.cc.
Json OperatorsSection(const ReportData& data);
Json CommunicationSection(const ReportData& data);
Json MemorySection(const ReportData& data);
// Returns the verdict of each hang, with the stacks of the ranks.
Json HangsSection(const ReportData& data);
Json GoodputSection(const ReportData& data);
Json PreflightSection(const ReportData& data);
Json StartsSection(const ReportData& data);
Json TracesSection(const ReportData& data);

}  // namespace dslaunch
