// The closing block for programs; docs/reference/json.md has its fields.
#pragma once

#include <string>

#include "cli/output/summary_view.h"

namespace dslaunch {

// One JSON object without line breaks. Bytes that are no UTF-8 are replaced.
std::string SummaryJson(const JobSummary& summary);

// "worker_exit", "node_lost" and so on; "none" for success.
const char* KindName(EndCause::Kind kind);

}  // namespace dslaunch
