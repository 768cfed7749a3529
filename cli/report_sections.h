// The sections of a report's page, each an element of HTML with an id; empty when there is nothing
// to say. Pure but for the time zone.
#pragma once

#include <cstdint>
#include <string>

#include "cli/report_data.h"

namespace dslaunch {

std::string LossSection(const ReportData& data);
std::string LearningRateSection(const ReportData& data);
std::string GradientNormSection(const ReportData& data);
std::string LossScaleSection(const ReportData& data);
std::string ThroughputSection(const ReportData& data);
std::string MfuSection(const ReportData& data);
std::string StepTimeSection(const ReportData& data);
std::string OperatorsSection(const ReportData& data);
std::string CommunicationSection(const ReportData& data);
std::string MemorySection(const ReportData& data);
std::string StartsSection(const ReportData& data);
std::string TracesSection(const ReportData& data);

// Local time, "2026-11-21 10:00:05 CET"; "?" for 0.
std::string TimeText(int64_t unix_ms);

}  // namespace dslaunch
