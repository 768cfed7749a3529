// Numbers and times as texts of a report. Pure except for the time zone.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch {

// Returns "12.3k" or "1.5M" with at most four significant digits; "?" for NaN.
std::string ShortNumber(double value);
std::string ShortBytes(double bytes);      // "1.5 GiB"
std::string ShortSeconds(double seconds);  // "12.3 ms", "1 min 20 s"
std::string Percent(double part);          // "42%" for 0.42

// Returns "87.12%".
std::string AccuracyText(double part);

// Returns "+31%".
std::string SignedPercent(double part);

// Returns local time, "2026-11-21 10:00:05 CET"; "?" for 0.
std::string TimeText(int64_t unix_ms);

}  // namespace dslaunch
