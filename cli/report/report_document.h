// Builds the JSON document in a report's page, and the page around the document, whose script draws
// it (report_script.h). All functions are pure. The document has this form:
//
//   {"heading", "job_id", "state": {"text", "look"}, "about": [...], "command", "cause", "tiles",
//    "left_out": [...], "cards": [...], "not_recorded": [...], "footer"}
//
// A card has the form {"id", "heading", "width", "lead", "parts": [...]}. Each part has one of the
// keys "plot", "bar", "table", "legend", "heading" and "text". A text is a string, {"strong": ...},
// {"code": ...}, or a list of these.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/report/report_plot.h"

namespace dslaunch {

// The width of a card as a part of the page.
enum class Width { kThird, kHalf, kWhole };

// Limit of the rows in tables with a row for each rank.
inline constexpr size_t kMaxRankRows = 16;

// Parts of a bar with their colours. Each part is a fraction of 1; a colour, such as "c0" or
// "grey", is a class of the page's style sheet.
using ColoredParts = std::vector<std::pair<double, std::string>>;

// Returns a text in bold.
Json Strong(const std::string& text);

// Returns a text in a fixed-pitch font.
Json Code(const std::string& text);

Json Card(const std::string& id, const std::string& heading, Json lead, std::vector<Json> parts,
          Width width);

// Returns an entry for the page's list of data that was not recorded, in place of an empty card.
Json Missing(const std::string& id, const std::string& heading, const std::string& why);

Json PlotPart(const Plot& plot);
Json BarPart(const ColoredParts& parts);
Json LegendPart(const std::vector<std::pair<std::string, std::string>>& colors_and_texts);
Json HeadingPart(const std::string& text);
// Returns a part with lines in a fixed-pitch font, such as stacks.
Json TextPart(const std::string& text);

// Returns a table. A cell is a text, or the result of a function below whose name ends in Cell. A
// column whose name begins with a blank contains numbers. `more` is shown below the table unless it
// is empty; with `has_total` the last row is a sum.
Json TablePart(const std::vector<std::string>& columns, std::vector<Json> rows,
               const std::string& more = "", bool has_total = false);
// Returns a cell with bars, one below the other.
Json BarsCell(const std::vector<ColoredParts>& bars);
// Returns a cell with a coloured square before its text.
Json SwatchCell(const std::string& color, const std::string& text);
// Returns a cell whose text is marked as bad.
Json BadCell(const std::string& text);

// Returns a sentence such as "and 5 more ranks, together 2 s.", with the number of rows that a
// table omits; empty if the table shows all rows. `what` is the noun of a row; `together` is the
// sum of the omitted rows, and may be empty.
std::string MoreText(size_t all, size_t shown, const std::string& what,
                     const std::string& together = "");

// Adds `section` to the document: a card, an entry of Missing(), a list of these, or nothing if it
// is null.
void AddTo(Json& document, Json section);

// Returns the HTML page. No text in the document can end the document's element or add an element.
std::string PageOf(const std::string& title, const Json& document);

}  // namespace dslaunch
