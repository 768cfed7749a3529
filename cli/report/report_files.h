// Reads the files that ranks and the front end wrote for a report. The files are not trusted: all
// sizes are bounded, numbers are finite or kNotRecorded, and each text is one sanitized line. All
// functions are pure.
#pragma once

#include <string_view>

#include "cli/report/report_data.h"

namespace dslaunch {

// Limit in bytes to which names and other short texts are cut.
inline constexpr size_t kMaxReportNameBytes = 200;

// Reads metrics.jsonl, whose last line may be incomplete. Python writes NaN and Infinity; these and
// null are read as numbers that are not finite.
RankMetrics ReadMetrics(std::string_view text);

// Reads run.json. Returns nullopt if `text` is not a JSON object.
std::optional<ReportedRun> ReadRunInfo(std::string_view text);

// Reads profile.json. Returns nullopt if `text` is not a JSON object.
std::optional<RankProfile> ReadRankProfile(std::string_view text);

// Reads preflight.json. Returns nullopt if `text` is not a JSON object.
std::optional<ReportedPreflight> ReadPreflight(std::string_view text);

// Reads events.jsonl. Lines that are not valid are counted in bad_lines.
JobEvents ReadJobEvents(std::string_view text);

}  // namespace dslaunch
