// The pieces of HTML that a report's sections are made of. Pure but for the time zone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/report/report_plot.h"

namespace dslaunch {

// How much of the page's width a section has, and the widths of plots that fill it.
enum class Width { kThird, kHalf, kWhole };
inline constexpr int kWholeWidth = 1080;
inline constexpr int kHalfWidth = 440;
inline constexpr int kThirdWidth = 350;

// Of tables with a row for each rank.
inline constexpr size_t kMaxRankRows = 16;

// A section. `lead` and `body` are HTML.
std::string Card(const std::string& id, const std::string& heading, const std::string& lead,
                 const std::string& body, Width width);

// In place of a section that has nothing: a line of the page's list of what was not recorded.
std::string Missing(const std::string& id, const std::string& heading, const std::string& why);
bool IsMissing(const std::string& section);

// With a legend where it has several lines with names. One of kWholeWidth is drawn for a narrow
// screen as well, on which its letters could not be read.
std::string PlotHtml(const Plot& plot);

// A bar of parts, each of 1 and with its class.
std::string BarHtml(const std::vector<std::pair<double, std::string>>& parts);

// "n" is a number, "name" a text.
std::string Cell(const std::string& text, const char* type = "n");

// `rows` is HTML. Columns that begin with a blank are numbers.
std::string TableHtml(const std::vector<std::string>& columns, const std::string& rows);

// Of how many rows a table shows only some; empty for all. `together` may be empty.
std::string MoreText(size_t all, size_t shown, const std::string& what,
                     const std::string& together = "");

// "87.12%"
std::string AccuracyText(double part);

// "+31%"
std::string SignedPercent(double part);

// Local time, "2026-11-21 10:00:05 CET"; "?" for 0.
std::string TimeText(int64_t unix_ms);

}  // namespace dslaunch
