// Line plots as SVG text, for a page without scripts: colours are classes of the page's style sheet
// (report_page.cc). Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

// `text` as HTML text and as a value in double quotes.
std::string Escaped(std::string_view text);

// "12.3k", "1.5M"; at most three digits that count. "?" for what is no number.
std::string ShortNumber(double value);
std::string ShortBytes(double bytes);      // "1.5 GiB"
std::string ShortSeconds(double seconds);  // "12.3 ms", "1 min 20 s"
std::string Percent(double part);          // "42%"; of 1

enum class PlotScale { kLinear, kLog10, kLog2 };

// Where an axis has its lines: round numbers within [low, high], about `wanted`, never many more,
// and at least one. Where low and high are the same there is only that. On the logarithmic ones
// both are above 0, and where they are close together the numbers are those of kLinear.
std::vector<double> AxisTicks(double low, double high, int wanted, PlotScale scale);

using PlotPoint = std::pair<double, double>;

// No more than four points for each of `columns` equal parts of the x axis: the first, the last,
// the lowest and the highest, so that the line looks the same. The order stays.
std::vector<PlotPoint> Thinned(const std::vector<PlotPoint>& points, int columns);

// The mean of each point and of those around it: `reach` to both sides, at the beginning as many
// after it as there are before it, at the end as many as there are.
std::vector<PlotPoint> Smoothed(const std::vector<PlotPoint>& points, size_t reach);

struct Plot {
  struct Line {
    std::string name;  // for the legend; empty: not in it
    int color = 0;     // 0 to 7, one of the page's; below 0: grey
    // Each a line of its own, with x in ascending order and all numbers finite.
    std::vector<std::vector<PlotPoint>> pieces;
    bool faint = false;
  };
  struct Mark {  // a vertical line
    double x = 0;
    std::string label;  // short; may be empty
    bool strong = false;
  };
  std::string title;                            // for who cannot see it
  std::string unit;                             // at the y axis; may be empty
  std::string (*number)(double) = ShortNumber;  // for the y axis and for what a pointer shows
  PlotScale scale = PlotScale::kLinear;
  bool from_zero = false;
  double y_limit = 0;  // what is above it is cut off; 0: nothing is
  int width = 520;
  int height = 240;
  std::vector<Line> lines;
  // From low to high at each x; drawn below the lines. May be empty.
  std::vector<std::pair<double, std::pair<double, double>>> band;
  std::vector<Mark> marks;
  std::vector<double> crosses;  // at the lower edge
};

// An <svg> element; empty when there is not a point to draw. Points that a logarithmic axis cannot
// have are left out.
std::string DrawPlot(const Plot& plot);

}  // namespace dslaunch
