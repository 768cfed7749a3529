// The closing block for programs; docs/reference/json.md has its fields.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/output/summary_view.h"

namespace dslaunch {

// The closing block that `json` has, which SummaryJson wrote; nullopt where that is no such object.
// `is_local`: all nodes were this machine.
std::optional<JobSummary> ReadSummaryJson(const nlohmann::json& json, bool is_local);

// One JSON object without line breaks. Bytes that are no UTF-8 are replaced.
std::string SummaryJson(const JobSummary& summary);

// "worker_exit", "node_lost" and so on; "none" for success.
const char* KindName(EndCause::Kind kind);

}  // namespace dslaunch
