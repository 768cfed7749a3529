// Formats numbers and times as texts of a report. The functions have no side effects, but TimeText
// depends on the time zone.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch {

// Returns a number such as "12.3k" or "1.5M", with at most four significant digits; "?" for NaN.
std::string ShortNumber(double value);
std::string ShortBytes(double bytes);      // returns a size such as "1.5 GiB"
std::string ShortSeconds(double seconds);  // returns a time such as "12.3 ms" or "1 min 20 s"
std::string Percent(double part);          // returns "42%" for 0.42

// Returns a fraction as a percentage with two decimals, such as "87.12%".
std::string AccuracyText(double part);

// Returns a percentage with its sign, such as "+31%".
std::string SignedPercent(double part);

// Returns local time, such as "2026-11-21 10:00:05 CET"; "?" for 0.
std::string TimeText(int64_t unix_ms);

}  // namespace dslaunch
