// The page of `dslaunch report`: a self-contained HTML file that needs neither network nor scripts.
#pragma once

#include <string>

#include "cli/report/report_data.h"

namespace dslaunch {

// Returns the page. Where data is missing, a sentence names what would have recorded it. Pure
// except for the time zone.
std::string ReportPage(const ReportData& data);

}  // namespace dslaunch
