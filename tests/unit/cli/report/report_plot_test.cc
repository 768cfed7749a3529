#include "cli/report/report_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/report/report_text.h"

namespace dslaunch::report_plot_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ReportPlotTest, ShortensNumbers) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(0.0006), "0.0006");
  EXPECT_EQ(ShortNumber(9999), "9999");
  EXPECT_EQ(ShortNumber(12'345), "12.35k");
  EXPECT_EQ(ShortNumber(124'439'808), "124.4M");
  EXPECT_EQ(ShortNumber(-2e12), "-2T");
  EXPECT_EQ(ShortNumber(NAN), "?");
  EXPECT_EQ(ShortBytes(0), "0 B");
  EXPECT_EQ(ShortBytes(1536), "1.5 KiB");
  EXPECT_EQ(ShortBytes(497'759'232), "475 MiB");
  EXPECT_EQ(ShortSeconds(0.00012), "120 µs");
  EXPECT_EQ(ShortSeconds(0.32), "320 ms");
  EXPECT_EQ(ShortSeconds(12.34), "12.3 s");
  EXPECT_EQ(ShortSeconds(1200), "20 min");
  EXPECT_EQ(ShortSeconds(119.9), "2 min");
  EXPECT_EQ(ShortSeconds(7260), "2 h 1 min");
  EXPECT_EQ(Percent(0.412), "41%");
  EXPECT_EQ(Percent(0.0312), "3.1%");
  EXPECT_EQ(Percent(0.0001), "<0.1%");
}

TEST(ReportPlotTest, ThinningKeepsPeaks) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 100'000; ++i) points.emplace_back(i, i == 54'321 ? 99 : i % 7);
  const std::vector<PlotPoint> thin = Thinned(points, 200);
  EXPECT_LE(thin.size(), 800u);
  EXPECT_GE(thin.size(), 400u);
  EXPECT_TRUE(std::ranges::is_sorted(thin, {}, &PlotPoint::first));
  EXPECT_TRUE(std::ranges::count(thin, PlotPoint(54'321, 99)) == 1);
  EXPECT_EQ(thin.front(), points.front());
  EXPECT_EQ(thin.back(), points.back());
  EXPECT_EQ(Thinned({{1, 2}, {3, 4}}, 200).size(), 2u);
}

TEST(ReportPlotTest, SmoothingAveragesNeighbours) {
  EXPECT_THAT(Smoothed({{1, 3}, {2, 6}, {3, 0}, {4, 0}}, 1),
              ElementsAre(Pair(1, 3), Pair(2, 3), Pair(3, 2), Pair(4, 0)));
}

TEST(ReportPlotTest, DocumentHasAllThatIsDrawn) {
  Plot plot;
  plot.title = "Loss <by> step";
  plot.scale = PlotScale::kLog10;
  plot.number = PlotNumber::kSeconds;
  plot.y_limit = 7;
  plot.lines.push_back({.name = "loss", .color = -1, .pieces = {{{1, 10}, {50, -3}}}});
  plot.band = {{0, {0.5, 1.5}}};
  plot.marks = {{50, "restart 1", true}};
  plot.crosses = {20, 80};
  EXPECT_EQ(PlotJson(plot), Json::parse(R"({
      "title": "Loss <by> step", "unit": "", "number": "seconds", "scale": "log10",
      "from_zero": false, "height": 240, "y_limit": 7.0,
      "lines": [{"name": "loss", "color": -1, "pieces": [[[1.0, 10.0], [50.0, -3.0]]]}],
      "band": [[0.0, 0.5, 1.5]], "marks": [{"x": 50.0, "label": "restart 1", "strong": true}],
      "crosses": [20.0, 80.0]})"));
}

TEST(ReportPlotTest, BoundsPointsOfLines) {
  Plot plot;
  plot.lines.push_back({.name = "loss", .pieces = {{}}});
  for (int i = 0; i < 100'000; ++i) plot.lines[0].pieces[0].emplace_back(i, i % 7);
  EXPECT_LE(PlotJson(plot)["lines"][0]["pieces"][0].size(), 2100u);
}

}  // namespace
}  // namespace dslaunch::report_plot_test
