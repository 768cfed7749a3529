// The page of `dslaunch report`: HTML that needs nothing beside it, no network and no script.
#pragma once

#include <string>

#include "cli/report/report_data.h"

namespace dslaunch {

// Pure but for the time zone. Where data is missing a sentence says what would have written it.
std::string ReportPage(const ReportData& data);

}  // namespace dslaunch
