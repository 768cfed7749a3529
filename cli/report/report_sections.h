// Builds the sections of a report. Each section is a card, an entry of Missing()
// (report_document.h), or a list of these; null if there is nothing to show. The functions have no
// side effects, but depend on the time zone.
#pragma once

#include "cli/report/report_data.h"
#include "cli/report/report_document.h"

namespace dslaunch {

// Returns the training and evaluation losses of rank 0 over the steps.
Json LossSection(const ReportData& data);

// Returns the accuracy on evaluation data over the steps.
Json AccuracySection(const ReportData& data);

// Returns the values of evaluations other than loss, accuracy and perplexity: a table, and a plot
// of each value that was measured more than once.
Json OtherResultsSection(const ReportData& data);

// Returns the learning rate of rank 0 over the steps.
Json LearningRateSection(const ReportData& data);

// Returns the norm of the gradients of rank 0 over the steps.
Json GradientNormSection(const ReportData& data);

// Returns the loss scale of rank 0 over the steps.
Json LossScaleSection(const ReportData& data);

// Returns the throughput of all ranks over the steps.
Json ThroughputSection(const ReportData& data);

// Returns the model FLOPs utilization over the steps.
Json MfuSection(const ReportData& data);

// Returns the step times of the ranks.
Json StepTimeSection(const ReportData& data);

// Returns a table with the time of each operator.
Json OperatorsSection(const ReportData& data);

// Returns the time of communication of the profiled ranks.
Json CommunicationSection(const ReportData& data);

// Returns the planned and the measured memory.
Json MemorySection(const ReportData& data);

// Returns the verdict of each hang, with the stacks of the ranks.
Json HangsSection(const ReportData& data);

// Returns the use of the ranks' time.
Json GoodputSection(const ReportData& data);

// Returns the measurements of --preflight.
Json PreflightSection(const ReportData& data);

// Returns the starts and restarts of the job.
Json StartsSection(const ReportData& data);

// Returns the list of traces that ranks wrote.
Json TracesSection(const ReportData& data);

}  // namespace dslaunch
