// Makes the page of `dslaunch report`, an HTML file with a JSON document and a script that draws
// the document. The page needs no network.
#pragma once

#include <string>

#include "cli/report/report_data.h"

namespace dslaunch {

// Returns the page. For missing data, a sentence names the option that would have recorded it. Has
// no side effects, but depends on the time zone.
std::string ReportPage(const ReportData& data);

}  // namespace dslaunch
