// The page of `dslaunch report`: an HTML file with one JSON document and a script that draws it. It
// needs no network.
#pragma once

#include <string>

#include "cli/report/report_data.h"

namespace dslaunch {

// Returns the page. Where data is missing, a sentence names what would have recorded it. Pure
// except for the time zone.
std::string ReportPage(const ReportData& data);

}  // namespace dslaunch
