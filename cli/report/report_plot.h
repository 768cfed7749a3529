// Builds line plots as parts of a page's document, which the page's script draws (report_script.h).
// All functions are pure.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

using Json = nlohmann::ordered_json;

enum class PlotScale { kLinear, kLog10, kLog2 };
// Formats of the numbers at the y axis and in tooltips.
enum class PlotNumber { kShort, kWhole, kSeconds, kPercent };

using PlotPoint = std::pair<double, double>;

// Reduces the points of a line without changing its appearance. Keeps at most four points (first,
// last, lowest and highest), in order, for each of `columns` equal parts of the x axis.
std::vector<PlotPoint> Thinned(const std::vector<PlotPoint>& points, int columns);

// Returns the moving average of `points` over `reach` neighbours on both sides. Near the ends fewer
// neighbours are used, equally many on both sides.
std::vector<PlotPoint> Smoothed(const std::vector<PlotPoint>& points, size_t reach);

struct Plot {
  struct Line {
    std::string name;  // name in the legend; empty to omit the line there
    int color = 0;     // 0 to 7 for one of the page's colours; negative for grey
    // Separate parts of the line, each with x in ascending order and finite numbers.
    std::vector<std::vector<PlotPoint>> pieces;
    bool faint = false;
  };
  // A vertical line at `x`.
  struct Mark {
    double x = 0;
    std::string label;  // short text at the line; may be empty
    bool strong = false;
  };
  std::string title;  // alternative text of the plot
  std::string unit;   // unit of the y axis; may be empty
  PlotNumber number = PlotNumber::kShort;
  PlotScale scale = PlotScale::kLinear;
  bool from_zero = false;
  double y_limit = 0;  // values above this limit are cut off; 0 for no limit
  int height = 240;    // height in pixels at the plot's usual width
  std::vector<Line> lines;
  // Pairs of x and the range (low, high) at x, drawn below the lines. May be empty.
  std::vector<std::pair<double, std::pair<double, double>>> band;
  std::vector<Mark> marks;
  std::vector<double> crosses;  // x positions of crosses at the lower edge of the plot
};

// Returns the plot with thinned lines. The script omits points that a logarithmic axis cannot show.
Json PlotJson(const Plot& plot);

}  // namespace dslaunch
