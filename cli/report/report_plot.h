// Line plots as a part of a page's document, which the page's script draws (report_script.h). Pure.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

using Json = nlohmann::ordered_json;

enum class PlotScale { kLinear, kLog10, kLog2 };
// How the numbers of the y axis and of tooltips are shown.
enum class PlotNumber { kShort, kWhole, kSeconds, kPercent };

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
  std::string title;  // alternative text
  std::string unit;   // unit of the y axis; may be empty
  PlotNumber number = PlotNumber::kShort;
  PlotScale scale = PlotScale::kLinear;
  bool from_zero = false;
  double y_limit = 0;  // values above are cut off; 0 for no limit
  int height = 240;    // pixels, where the plot has its usual width
  std::vector<Line> lines;
  // Pairs of x and the range (low, high) there, drawn below the lines. May be empty.
  std::vector<std::pair<double, std::pair<double, double>>> band;
  std::vector<Mark> marks;
  std::vector<double> crosses;  // x positions of crosses at the lower edge
};

// Returns the plot with thinned lines. The script omits points that a logarithmic axis cannot show.
Json PlotJson(const Plot& plot);

}  // namespace dslaunch
