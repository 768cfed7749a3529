// Formats numbers and ranks as short texts for the columns of a screen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// Returns a size with at most four characters before its unit, in powers of 1024: "0", "512", "61G"
// or "1.5T".
std::string BriefBytes(double bytes);

// Returns a number with three significant digits, such as "0.512", "16.5", "1204" or "12k".
std::string BriefNumber(double number);

// Returns ascending ranks as ranges, such as "ranks 0-254, 300", shortened to `max_bytes` with
// "...".
std::string RankRangesText(const std::vector<uint32_t>& ranks, size_t max_bytes);

// Returns the median of `values`; nullopt if there are no values.
std::optional<double> MedianValue(std::vector<double> values);

}  // namespace dslaunch
