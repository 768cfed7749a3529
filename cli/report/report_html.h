// HTML elements for the sections of a report. Pure except for the time zone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/report/report_plot.h"

namespace dslaunch {

// The width of a section as a part of the page, and the widths of plots that fill it.
enum class Width { kThird, kHalf, kWhole };
inline constexpr int kWholeWidth = 1080;
inline constexpr int kHalfWidth = 440;
inline constexpr int kThirdWidth = 350;

// Limit for tables with a row for each rank.
inline constexpr size_t kMaxRankRows = 16;

// Returns a section. `lead` and `body` are HTML.
std::string Card(const std::string& id, const std::string& heading, const std::string& lead,
                 const std::string& body, Width width);

// Returns an entry for the page's list of what was not recorded, in place of an empty section.
std::string Missing(const std::string& id, const std::string& heading, const std::string& why);
bool IsMissing(const std::string& section);

// Returns a plot, with a legend if it has several named lines. A plot of kWholeWidth is also drawn
// for narrow screens, where its text would be too small.
std::string PlotHtml(const Plot& plot);

// Returns a bar of parts: pairs of a fraction of 1 and a CSS class.
std::string BarHtml(const std::vector<std::pair<double, std::string>>& parts);

// Returns a table cell. `type` is "n" for a number, "name" for a text.
std::string Cell(const std::string& text, const char* type = "n");

// Returns a table. `rows` is HTML. A column whose name begins with a blank holds numbers.
std::string TableHtml(const std::vector<std::string>& columns, const std::string& rows);

// Returns how many rows a table omits; empty if it shows all. `together` may be empty.
std::string MoreText(size_t all, size_t shown, const std::string& what,
                     const std::string& together = "");

// Returns "87.12%".
std::string AccuracyText(double part);

// Returns "+31%".
std::string SignedPercent(double part);

// Returns local time, "2026-11-21 10:00:05 CET"; "?" for 0.
std::string TimeText(int64_t unix_ms);

}  // namespace dslaunch
