// The JSON document in a report's page, and the page around it, whose script draws it
// (report_script.h). Pure.
//
//   {"heading", "job_id", "state": {"text", "look"}, "about": [...], "command", "cause", "tiles",
//    "left_out": [...], "cards": [...], "not_recorded": [...], "footer"}
//
// A card: {"id", "heading", "width", "lead", "parts": [...]}. A part has one of "plot", "bar",
// "table", "legend", "heading" and "text". A text is a string, {"strong": ...}, {"code": ...}, or a
// list of these.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/report/report_plot.h"

namespace dslaunch {

// The width of a card as a part of the page.
enum class Width { kThird, kHalf, kWhole };

// Limit for tables with a row for each rank.
inline constexpr size_t kMaxRankRows = 16;

// Colours, such as "c0" and "grey", are classes of the page's style sheet.
using ColoredParts = std::vector<std::pair<double, std::string>>;  // fractions of 1

Json Strong(const std::string& text);
Json Code(const std::string& text);

Json Card(const std::string& id, const std::string& heading, Json lead, std::vector<Json> parts,
          Width width);

// Returns an entry for the page's list of what was not recorded, in place of an empty card.
Json Missing(const std::string& id, const std::string& heading, const std::string& why);

Json PlotPart(const Plot& plot);
Json BarPart(const ColoredParts& parts);
Json LegendPart(const std::vector<std::pair<std::string, std::string>>& colors_and_texts);
Json HeadingPart(const std::string& text);
// Lines in a fixed pitch, such as stacks.
Json TextPart(const std::string& text);

// A cell is a text, or what a function below whose name ends in Cell returns. A column whose name
// begins with a blank holds numbers. `more` is shown below the table unless it is empty; with
// `has_total` the last row is a sum.
Json TablePart(const std::vector<std::string>& columns, std::vector<Json> rows,
               const std::string& more = "", bool has_total = false);
// A cell of bars, one below the other.
Json BarsCell(const std::vector<ColoredParts>& bars);
// A cell with a square of a colour before its text.
Json SwatchCell(const std::string& color, const std::string& text);
// A cell whose text is marked as bad.
Json BadCell(const std::string& text);

// Returns how many rows a table omits; empty if it shows all. `together` may be empty.
std::string MoreText(size_t all, size_t shown, const std::string& what,
                     const std::string& together = "");

// Adds a card, an entry of Missing(), a list of these, or nothing if it is null.
void AddTo(Json& document, Json section);

// Returns the page. No text in the document can end it or add an element.
std::string PageOf(const std::string& title, const Json& document);

}  // namespace dslaunch
