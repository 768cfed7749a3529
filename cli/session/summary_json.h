// The closing block as JSON, for programs. docs/reference/json.md describes its fields.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/output/summary_view.h"

namespace dslaunch {

// Reads the closing block from `json`, which SummaryJson wrote; nullopt if it is another object.
// `is_local`: all nodes were this machine.
std::optional<JobSummary> ReadSummaryJson(const nlohmann::json& json, bool is_local);

// Returns {"seconds": {BUCKET: s, ...}, ...}, or null.
nlohmann::ordered_json GoodputJson(const std::optional<Goodput>& goodput);

// Returns one JSON object without line breaks. Bytes that are not UTF-8 are replaced.
std::string SummaryJson(const JobSummary& summary);

// Returns the first cause of a failed job in the format of torchelastic's error file. One JSON
// object; bytes that are not UTF-8 are replaced.
std::string ErrorFileJson(const JobSummary& summary, int64_t unix_s);

// Writes the error file to `path` for the launcher that started this one (TORCHELASTIC_ERROR_FILE);
// does nothing if it is empty. Fails with kIo, naming the variable.
Result<void> WriteErrorFile(const std::string& path, const JobSummary& summary);

// Returns "worker_exit", "node_lost" and so on; "none" for success.
const char* KindName(EndCause::Kind kind);

}  // namespace dslaunch
