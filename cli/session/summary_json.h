// The closing block for programs; docs/reference/json.md has its fields.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/output/summary_view.h"

namespace dslaunch {

// The closing block that `json` has, which SummaryJson wrote; nullopt where that is no such object.
// `is_local`: all nodes were this machine.
std::optional<JobSummary> ReadSummaryJson(const nlohmann::json& json, bool is_local);

// One JSON object without line breaks. Bytes that are no UTF-8 are replaced.
std::string SummaryJson(const JobSummary& summary);

// The first cause of a failed job as torchelastic's error file has it. One JSON object; bytes that
// are no UTF-8 are replaced.
std::string ErrorFileJson(const JobSummary& summary, int64_t unix_s);

// Puts it into `path` for the launcher that started this one (TORCHELASTIC_ERROR_FILE); empty: does
// nothing. kIo, naming the variable.
Result<void> WriteErrorFile(const std::string& path, const JobSummary& summary);

// "worker_exit", "node_lost" and so on; "none" for success.
const char* KindName(EndCause::Kind kind);

}  // namespace dslaunch
