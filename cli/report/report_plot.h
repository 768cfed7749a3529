// Line plots as SVG text, for a page without scripts. Colours are classes of the page's style sheet
// (report_page.cc). Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

// Escapes `text` for HTML text and for attributes in double quotes.
std::string Escaped(std::string_view text);

// Returns "12.3k" or "1.5M" with at most three significant digits; "?" for NaN.
std::string ShortNumber(double value);
std::string ShortBytes(double bytes);      // "1.5 GiB"
std::string ShortSeconds(double seconds);  // "12.3 ms", "1 min 20 s"
std::string Percent(double part);          // "42%" for 0.42

enum class PlotScale { kLinear, kLog10, kLog2 };

// Returns the positions of an axis' grid lines: round numbers within [low, high], about `wanted`,
// never many more, and at least one. Returns only `low` if low equals high. Logarithmic scales
// require both to be positive; if they are close together, the numbers are chosen as for kLinear.
std::vector<double> AxisTicks(double low, double high, int wanted, PlotScale scale);

using PlotPoint = std::pair<double, double>;

// Reduces a line without changing its look: keeps at most four points (first, last, lowest and
// highest) for each of `columns` equal parts of the x axis, in order.
std::vector<PlotPoint> Thinned(const std::vector<PlotPoint>& points, int columns);

// Returns the moving average of `points` over `reach` neighbours on both sides; near the ends over
// fewer, as many on one side as on the other.
std::vector<PlotPoint> Smoothed(const std::vector<PlotPoint>& points, size_t reach);

struct Plot {
  struct Line {
    std::string name;  // name in the legend; empty to omit it there
    int color = 0;     // 0 to 7 for the page's colours; negative for grey
    // Separate lines, each with x in ascending order and finite numbers.
    std::vector<std::vector<PlotPoint>> pieces;
    bool faint = false;
  };
  struct Mark {  // A vertical line.
    double x = 0;
    std::string label;  // short; may be empty
    bool strong = false;
  };
  std::string title;                            // alternative text
  std::string unit;                             // unit of the y axis; may be empty
  std::string (*number)(double) = ShortNumber;  // formats values of the y axis and of tooltips
  PlotScale scale = PlotScale::kLinear;
  bool from_zero = false;
  double y_limit = 0;  // values above are cut off; 0 for no limit
  int width = 520;
  int height = 240;
  std::vector<Line> lines;
  // Pairs of x and the range (low, high) there, drawn below the lines. May be empty.
  std::vector<std::pair<double, std::pair<double, double>>> band;
  std::vector<Mark> marks;
  std::vector<double> crosses;  // x positions of crosses at the lower edge
};

// Returns an <svg> element; empty if there is no point to draw. Points that a logarithmic axis
// cannot show are omitted.
std::string DrawPlot(const Plot& plot);

}  // namespace dslaunch
