#include "cli/report/report_plot.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace dslaunch {
namespace {

constexpr int kColumns = 504;  // columns for Thinned; half of the pixels of the widest plot

Json PointsOf(const std::vector<PlotPoint>& points) {
  Json list = Json::array();
  for (const auto& [x, y] : points) list.push_back({x, y});
  return list;
}

Json LineOf(const Plot::Line& line) {
  Json object = {{"name", line.name}, {"color", line.color}};
  if (line.faint) object["faint"] = true;
  object["pieces"] = Json::array();
  for (const std::vector<PlotPoint>& piece : line.pieces)
    object["pieces"].push_back(PointsOf(Thinned(piece, kColumns)));
  return object;
}

}  // namespace

std::vector<PlotPoint> Thinned(const std::vector<PlotPoint>& points, int columns) {
  if (points.size() <= static_cast<size_t>(columns) * 4) return points;
  const double from = points.front().first;
  const double size = std::max(points.back().first - from, 1e-300);
  const auto column = [&](const PlotPoint& point) {
    return std::min(static_cast<int>((point.first - from) / size * columns), columns - 1);
  };
  std::vector<PlotPoint> kept;
  for (auto begin = points.begin(); begin != points.end();) {
    const auto end = std::find_if(begin, points.end(), [&](const PlotPoint& point) {
      return column(point) != column(*begin);
    });
    const auto [lowest, highest] = std::minmax_element(
        begin, end, [](const PlotPoint& a, const PlotPoint& b) { return a.second < b.second; });
    std::array keep = {begin, lowest, highest, end - 1};
    std::ranges::sort(keep);
    const auto repeated = std::unique(keep.begin(), keep.end());
    for (auto it = keep.begin(); it != repeated; ++it) kept.push_back(**it);
    begin = end;
  }
  return kept;
}

std::vector<PlotPoint> Smoothed(const std::vector<PlotPoint>& points, size_t reach) {
  std::vector<double> sums = {0};
  for (const auto& [x, y] : points) sums.push_back(sums.back() + y);
  std::vector<PlotPoint> smooth;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t before = std::min(reach, i);
    const size_t after = std::min(before, points.size() - 1 - i);
    const double sum = sums[i + after + 1] - sums[i - before];
    smooth.emplace_back(points[i].first, sum / static_cast<double>(before + after + 1));
  }
  return smooth;
}

Json PlotJson(const Plot& plot) {
  static constexpr const char* kNumbers[] = {"number", "whole", "seconds", "percent"};
  static constexpr const char* kScales[] = {"linear", "log10", "log2"};
  Json object = {{"title", plot.title},
                 {"unit", plot.unit},
                 {"number", kNumbers[static_cast<size_t>(plot.number)]},
                 {"scale", kScales[static_cast<size_t>(plot.scale)]},
                 {"from_zero", plot.from_zero},
                 {"height", plot.height}};
  if (plot.y_limit > 0) object["y_limit"] = plot.y_limit;
  object["lines"] = Json::array();
  for (const Plot::Line& line : plot.lines) object["lines"].push_back(LineOf(line));
  for (const auto& [x, range] : plot.band) object["band"].push_back({x, range.first, range.second});
  for (const Plot::Mark& mark : plot.marks)
    object["marks"].push_back({{"x", mark.x}, {"label", mark.label}, {"strong", mark.strong}});
  for (const double x : plot.crosses) object["crosses"].push_back(x);
  return object;
}

}  // namespace dslaunch
