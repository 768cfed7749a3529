// Reads what ranks and the front end wrote for a report. Whatever is in these files, what comes out
// is bounded, finite or kNotRecorded, and its texts are one harmless line each. Pure.
#pragma once

#include <string_view>

#include "cli/report/report_data.h"

namespace dslaunch {

// Names and other short texts are cut there.
inline constexpr size_t kMaxReportNameBytes = 200;

// metrics.jsonl, the last line of which may still be on its way. NaN and Infinity, which Python
// writes, are numbers that are not finite; so is null.
RankMetrics ReadMetrics(std::string_view text);

// run.json and profile.json; nullopt when it is no JSON object.
std::optional<RunInfo> ReadRunInfo(std::string_view text);
std::optional<RankProfile> ReadRankProfile(std::string_view text);

// events.jsonl
JobEvents ReadJobEvents(std::string_view text);

}  // namespace dslaunch
