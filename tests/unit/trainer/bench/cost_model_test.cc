#include "trainer/bench/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dslaunch {
namespace {

using testing::HasSubstr;

TEST(MeasurementTest, BusBandwidthMatchesNcclTests) {
  const auto bus = [](MeasuredExchange exchange, int ranks) {
    return Measurement{exchange, ranks, 1000, 1e-3, 0}.bus_bandwidth();
  };
  EXPECT_DOUBLE_EQ(bus(MeasuredExchange::kAllReduce, 4), 1.5e6);
  EXPECT_DOUBLE_EQ(bus(MeasuredExchange::kReduceScatter, 4), 0.75e6);
  EXPECT_DOUBLE_EQ(bus(MeasuredExchange::kAllGather, 2), 0.5e6);
  EXPECT_DOUBLE_EQ(bus(MeasuredExchange::kAllToAll, 8), 0.875e6);
  EXPECT_DOUBLE_EQ(bus(MeasuredExchange::kBroadcast, 8), 1e6);
  EXPECT_DOUBLE_EQ(bus(MeasuredExchange::kSendRecv, 8), 1e6);
}

std::vector<Measurement> Linear(double alpha_s, double beta) {
  std::vector<Measurement> all;
  for (int64_t bytes = 1024; bytes <= 1 << 26; bytes *= 4) {
    all.push_back(
        {MeasuredExchange::kSendRecv, 2, bytes, alpha_s + beta * static_cast<double>(bytes), 0});
  }
  return all;
}

TEST(FitCostTest, FindsLatencyAndBandwidth) {
  const LinearCost cost = FitCost(Linear(20e-6, 1e-9));
  EXPECT_NEAR(cost.alpha_s, 20e-6, 1e-12);
  EXPECT_NEAR(cost.beta_s_per_byte, 1e-9, 1e-16);
  EXPECT_LT(cost.worst_relative_error, 1e-6);
}

TEST(FitCostTest, ReturnsNoNegativeParameters) {
  std::vector<Measurement> all = Linear(0, 1e-9);
  all.front().time_s /= 2;
  EXPECT_GE(FitCost(all).alpha_s, 0);
  EXPECT_GT(FitCost(all).beta_s_per_byte, 0);
  all = Linear(1e-3, 0);
  all.back().time_s /= 2;
  EXPECT_GE(FitCost(all).beta_s_per_byte, 0);
  EXPECT_GT(FitCost(all).alpha_s, 0);
  all.resize(1);
  EXPECT_NEAR(FitCost(all).beta_s_per_byte * 1024, 1e-3, 1e-12);
}

// 300 M fp32 parameters at 1 GB/s: the server's time grows linearly with the ranks, while the
// ring's time approaches twice the size divided by the bandwidth.
TEST(PredictionTest, ServerTimeIsLinearAndRingTimeBounded) {
  const LinearCost link{0, 1e-9, 0};
  for (int ranks = 2; ranks <= 64; ranks *= 2) {
    EXPECT_NEAR(ParameterServerSeconds(ranks, 1.2e9, link), 2.4 * ranks, 1e-9);
    EXPECT_NEAR(RingSeconds(ranks, 1.2e9, link), 2.4 * (ranks - 1) / ranks, 1e-9);
  }
  EXPECT_NEAR(RingSeconds(3, 0, {1e-3, 1e-9, 0}), 4e-3, 1e-12);
  EXPECT_THAT(PredictionTable(300e6, link), HasSubstr("64                 153.60       2.36"));
}

TEST(MeasurementTest, TableJsonAndPlotContainMeasurements) {
  std::vector<Measurement> all = Linear(20e-6, 1e-9);
  all[0].errors = 3;
  const std::string table = MeasurementTable(all);
  EXPECT_THAT(table,
              HasSubstr("send_recv            2         1024         21.0        0.049        "
                        "0.049       3\n"));
  EXPECT_THAT(table, HasSubstr("send_recv of 2 ranks: 20.0 us + size / 1.000 GB/s (within 0%)"));
  const auto json = nlohmann::json::parse(MeasurementJson(all));
  EXPECT_EQ(json["measurements"].size(), all.size());
  EXPECT_EQ(json["measurements"][0]["wrong"], 3);
  EXPECT_NEAR(json["fits"][0]["alpha_s"].get<double>(), 20e-6, 1e-12);
  const std::string plot = MeasurementPlot(all);
  EXPECT_THAT(plot, HasSubstr("send_recv, 2 ranks</text>"));
  EXPECT_THAT(plot, testing::Not(HasSubstr("nan")));
  EXPECT_THAT(MeasurementPlot({}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace dslaunch
