#include "cli/report/report_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>

namespace dslaunch::report_plot_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Not;
using ::testing::Pair;

TEST(ReportPlotTest, EscapesText) {
  EXPECT_EQ(Escaped("<b a=\"1\" c='2'>&amp;"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;");
}

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

TEST(ReportPlotTest, PlacesTicksAtRoundNumbers) {
  EXPECT_THAT(AxisTicks(0, 10, 5, PlotScale::kLinear), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(AxisTicks(1, 2000, 5, PlotScale::kLinear), ElementsAre(500, 1000, 1500, 2000));
  EXPECT_THAT(AxisTicks(0.5, 3000, 5, PlotScale::kLog10), ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(AxisTicks(1000, 70'000, 4, PlotScale::kLog2),
              ElementsAre(1024, 4096, 16'384, 65'536));
  EXPECT_THAT(AxisTicks(2, 4, 5, PlotScale::kLog10), ElementsAre(2, 2.5, 3, 3.5, 4));
  EXPECT_THAT(AxisTicks(7, 7, 5, PlotScale::kLinear), ElementsAre(7));
}

TEST(ReportPlotTest, PlacesFewFiniteTicksInAnyRange) {
  for (const double size : {1e-30, 1e-9, 1e-3, 1.0, 12.5, 1e6, 1e29}) {
    for (const double low : {-1e29, -3.3, 0.0, 1e-9, 5.0, 1e12}) {
      const double high = low + size;
      if (!(high > low)) continue;
      const std::vector<double> ticks = AxisTicks(low, high, 5, PlotScale::kLinear);
      EXPECT_THAT(ticks.size(), AllOf(Ge(1u), Le(12u))) << low << " " << size;
      EXPECT_TRUE(std::ranges::is_sorted(ticks));
      for (const double tick : ticks) EXPECT_TRUE(std::isfinite(tick));
    }
  }
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

Plot Simple(std::vector<PlotPoint> points) {
  Plot plot;
  plot.title = "Loss <by> step";
  plot.lines.push_back({.name = "loss", .pieces = {std::move(points)}});
  return plot;
}

// Returns all coordinates of the lines.
std::vector<PlotPoint> DrawnPoints(const std::string& svg) {
  std::vector<PlotPoint> drawn;
  const std::regex list("<polyline[^>]* points=\"([^\"]*)\"");
  for (std::sregex_iterator line(svg.begin(), svg.end(), list), end; line != end; ++line) {
    const std::string points = (*line)[1];
    const std::regex pair("([-0-9.]+),([-0-9.]+)");
    for (std::sregex_iterator point(points.begin(), points.end(), pair); point != end; ++point)
      drawn.emplace_back(std::stod((*point)[1]), std::stod((*point)[2]));
  }
  return drawn;
}

TEST(ReportPlotTest, DrawsLineWithinPicture) {
  const std::string svg = DrawPlot(Simple({{1, 10}, {50, -3}, {100, 2}}));
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 520 240\""));
  EXPECT_THAT(svg, HasSubstr("aria-label=\"Loss &lt;by&gt; step\""));
  const std::vector<PlotPoint> drawn = DrawnPoints(svg);
  ASSERT_EQ(drawn.size(), 3u);
  for (const auto& [x, y] : drawn) {
    EXPECT_THAT(x, AllOf(Ge(0), Le(520)));
    EXPECT_THAT(y, AllOf(Ge(0), Le(240)));
  }
  EXPECT_LT(drawn[0].second, drawn[2].second) << "more is further up";
  EXPECT_GT(drawn[1].second, drawn[2].second);
  EXPECT_LT(drawn[0].first, drawn[1].first);
}

TEST(ReportPlotTest, LogarithmicAxisSpacesDecadesEqually) {
  Plot plot = Simple({{1, 1}, {2, 10}, {3, 100}, {4, 0}});
  plot.scale = PlotScale::kLog10;
  const std::vector<PlotPoint> drawn = DrawnPoints(DrawPlot(plot));
  ASSERT_EQ(drawn.size(), 3u) << "it has no place for 0";
  EXPECT_NEAR(drawn[0].second - drawn[1].second, drawn[1].second - drawn[2].second, 0.2);
}

TEST(ReportPlotTest, DrawsFiniteCoordinatesForAnyNumbers) {
  const std::vector<std::vector<PlotPoint>> all = {{{1, 0}},
                                                   {{1, 5}, {2, 5}},
                                                   {{1, 1e30}, {2, -1e30}},
                                                   {{1, 1e-30}, {2, 0}},
                                                   {{9e15, 1}, {9e15, 2}},
                                                   {{1, -1e30}, {2, -1e30}}};
  for (const auto& points : all) {
    for (const PlotScale scale : {PlotScale::kLinear, PlotScale::kLog10, PlotScale::kLog2}) {
      Plot plot = Simple(points);
      plot.scale = scale;
      const std::string svg = DrawPlot(plot);
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr("inf")));
    }
  }
  EXPECT_THAT(DrawPlot(Plot()), IsEmpty());
}

TEST(ReportPlotTest, DrawsMarksBandsAndCrosses) {
  Plot plot = Simple({{0, 1}, {100, 2}});
  plot.marks = {{50, "restart 1", true}, {51, "epoch 2"}, {500, "beyond"}};
  plot.crosses = {20, 20, 80};
  plot.band = {{0, {0.5, 1.5}}, {100, {1, 3}}};
  const std::string svg = DrawPlot(plot);
  EXPECT_THAT(svg, HasSubstr("class=\"mark strong\""));
  EXPECT_THAT(svg, HasSubstr(">restart 1</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">epoch 2</text>"))) << "there is no room for it";
  EXPECT_THAT(svg, Not(HasSubstr("beyond")));
  EXPECT_THAT(svg, HasSubstr("<polygon class=\"band\""));
  const std::regex cross("class=\"cross\"");
  EXPECT_EQ(std::distance(std::sregex_iterator(svg.begin(), svg.end(), cross), {}), 2);
  EXPECT_THAT(svg, HasSubstr("<title>step 0\nloss: 1</title>")) << "for a pointer";
}

}  // namespace
}  // namespace dslaunch::report_plot_test
