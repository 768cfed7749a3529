// Formats the closing block as JSON for programs. docs/reference/json.md describes its fields.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/output/summary_view.h"

namespace dslaunch {

// Reads the closing block from `json`, which SummaryJson wrote; nullopt if `json` is a different
// object. `is_local` is true if all nodes were this machine.
std::optional<JobSummary> ReadSummaryJson(const nlohmann::json& json, bool is_local);

// Returns {"seconds": {BUCKET: s, ...}, ...}, or null for nullopt.
nlohmann::ordered_json GoodputJson(const std::optional<Goodput>& goodput);

// Returns the closing block as a JSON object without line breaks. Bytes that are not UTF-8 are
// replaced.
std::string SummaryJson(const JobSummary& summary);

// Returns the first cause of a failed job in the format of torchelastic's error file, as one JSON
// object. `unix_s` is its timestamp. Bytes that are not UTF-8 are replaced.
std::string ErrorFileJson(const JobSummary& summary, int64_t unix_s);

// Writes the error file to `path` for the launcher that started this one (TORCHELASTIC_ERROR_FILE).
// Does nothing if `path` is empty. Returns kIo, naming the variable, if the file cannot be written.
Result<void> WriteErrorFile(const std::string& path, const JobSummary& summary);

// Returns the kind as a word such as "worker_exit" or "node_lost"; "none" for success.
const char* KindName(EndCause::Kind kind);

}  // namespace dslaunch
