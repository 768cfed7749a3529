#include "trainer/bench/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/base/format.h"

namespace dslaunch {

using nlohmann::json;

namespace {

constexpr double kGiga = 1e9, kMicro = 1e-6;

using Series = std::map<std::pair<MeasuredExchange, int>, std::vector<Measurement>>;

Series BySeries(const std::vector<Measurement>& measurements) {
  Series series;
  for (const Measurement& one : measurements) series[{one.exchange, one.ranks}].push_back(one);
  return series;
}

}  // namespace

const std::vector<MeasuredExchange>& AllExchanges() {
  static const std::vector<MeasuredExchange> all = {
      MeasuredExchange::kAllReduce,      MeasuredExchange::kReduceScatter,
      MeasuredExchange::kAllGather,      MeasuredExchange::kBroadcast,
      MeasuredExchange::kAllToAll,       MeasuredExchange::kSendRecv,
      MeasuredExchange::kParameterServer};
  return all;
}

const char* Name(MeasuredExchange exchange) {
  switch (exchange) {
    case MeasuredExchange::kAllReduce:
      return "all_reduce";
    case MeasuredExchange::kReduceScatter:
      return "reduce_scatter";
    case MeasuredExchange::kAllGather:
      return "all_gather";
    case MeasuredExchange::kBroadcast:
      return "broadcast";
    case MeasuredExchange::kAllToAll:
      return "all_to_all";
    case MeasuredExchange::kSendRecv:
      return "send_recv";
    case MeasuredExchange::kParameterServer:
      return "parameter_server";
  }
  std::abort();
}

double Measurement::algorithm_bandwidth() const {
  return time_s > 0 ? static_cast<double>(bytes) / time_s : 0;
}

double Measurement::bus_bandwidth() const {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (exchange) {
    case MeasuredExchange::kAllReduce:
      return algorithm_bandwidth() * 2 * others;
    case MeasuredExchange::kReduceScatter:
    case MeasuredExchange::kAllGather:
    case MeasuredExchange::kAllToAll:
      return algorithm_bandwidth() * others;
    case MeasuredExchange::kBroadcast:
    case MeasuredExchange::kSendRecv:
    case MeasuredExchange::kParameterServer:
      return algorithm_bandwidth();
  }
  std::abort();
}

LinearCost FitCost(const std::vector<Measurement>& measurements) {
  // The sum of ((alpha + beta b - t) / t)^2 is minimal where its derivatives with respect to alpha
  // and beta are 0, so this linear system is solved.
  double a11 = 0, a12 = 0, a22 = 0, b1 = 0, b2 = 0;
  for (const Measurement& one : measurements) {
    const double x = 1 / one.time_s, y = static_cast<double>(one.bytes) / one.time_s;
    a11 += x * x, a12 += x * y, a22 += y * y, b1 += x, b2 += y;
  }
  LinearCost cost;
  const double determinant = a11 * a22 - a12 * a12;
  if (determinant > 1e-12 * a11 * a22) {
    cost.alpha_s = (b1 * a22 - b2 * a12) / determinant;
    cost.beta_s_per_byte = (a11 * b2 - a12 * b1) / determinant;
  }
  if (cost.alpha_s < 0 || determinant <= 1e-12 * a11 * a22) {
    cost.alpha_s = 0;
    cost.beta_s_per_byte = a22 > 0 ? b2 / a22 : 0;
  } else if (cost.beta_s_per_byte < 0) {
    cost.beta_s_per_byte = 0;
    cost.alpha_s = b1 / a11;
  }
  for (const Measurement& one : measurements) {
    const double fitted = cost.alpha_s + cost.beta_s_per_byte * static_cast<double>(one.bytes);
    cost.worst_relative_error =
        std::max(cost.worst_relative_error, std::abs(fitted / one.time_s - 1));
  }
  return cost;
}

double RingSeconds(int ranks, double bytes, const LinearCost& link) {
  return 2 * (ranks - 1) * (link.alpha_s + link.beta_s_per_byte * bytes / ranks);
}

double ParameterServerSeconds(int ranks, double bytes, const LinearCost& link) {
  return 2 * ranks * (link.alpha_s + link.beta_s_per_byte * bytes);
}

std::string MeasurementTable(const std::vector<Measurement>& measurements) {
  std::string text = Format("%-16s %5s %12s %12s %12s %12s %7s\n", "exchange", "ranks", "size (B)",
                            "time (us)", "algbw (GB/s)", "busbw (GB/s)", "wrong");
  for (const Measurement& one : measurements) {
    text += Format("%-16s %5d %12lld %12.1f %12.3f %12.3f %7lld\n", Name(one.exchange), one.ranks,
                   static_cast<long long>(one.bytes), one.time_s / kMicro,
                   one.algorithm_bandwidth() / kGiga, one.bus_bandwidth() / kGiga,
                   static_cast<long long>(one.errors));
  }
  for (const auto& [key, series] : BySeries(measurements)) {
    if (series.size() < 2) continue;
    const LinearCost cost = FitCost(series);
    text += Format("%s of %d ranks: %.1f us + size / %.3f GB/s (within %.0f%%)\n", Name(key.first),
                   key.second, cost.alpha_s / kMicro, 1 / (cost.beta_s_per_byte * kGiga),
                   100 * cost.worst_relative_error);
  }
  return text;
}

std::string MeasurementJson(const std::vector<Measurement>& measurements) {
  json all = {{"measurements", json::array()}, {"fits", json::array()}};
  for (const Measurement& one : measurements) {
    all["measurements"].push_back({{"exchange", Name(one.exchange)},
                                   {"ranks", one.ranks},
                                   {"bytes", one.bytes},
                                   {"time_s", one.time_s},
                                   {"algorithm_bytes_per_s", one.algorithm_bandwidth()},
                                   {"bus_bytes_per_s", one.bus_bandwidth()},
                                   {"wrong", one.errors}});
  }
  for (const auto& [key, series] : BySeries(measurements)) {
    if (series.size() < 2) continue;
    const LinearCost cost = FitCost(series);
    all["fits"].push_back({{"exchange", Name(key.first)},
                           {"ranks", key.second},
                           {"alpha_s", cost.alpha_s},
                           {"beta_s_per_byte", cost.beta_s_per_byte},
                           {"worst_relative_error", cost.worst_relative_error}});
  }
  return all.dump(1) + "\n";
}

std::string MeasurementPlot(const std::vector<Measurement>& measurements) {
  constexpr double kWidth = 720, kHeight = 420, kLeft = 70, kRight = 190, kTop = 20, kBottom = 50;
  constexpr std::array kColours = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728",
                                   "#9467bd", "#8c564b", "#e377c2", "#7f7f7f"};
  double low_x = 1e300, high_x = 0, low_y = 1e300, high_y = 0;
  for (const Measurement& one : measurements) {
    const double x = std::log10(static_cast<double>(std::max<int64_t>(one.bytes, 1)));
    const double y = std::log10(std::max(one.bus_bandwidth(), 1.0));
    low_x = std::min(low_x, std::floor(x)), high_x = std::max(high_x, std::ceil(x));
    low_y = std::min(low_y, std::floor(y)), high_y = std::max(high_y, std::ceil(y));
  }
  if (measurements.empty()) low_x = low_y = 0;
  high_x = std::max(high_x, low_x + 1), high_y = std::max(high_y, low_y + 1);
  const auto place_x = [&](double log_x) {
    return kLeft + (log_x - low_x) / (high_x - low_x) * (kWidth - kLeft - kRight);
  };
  const auto place_y = [&](double log_y) {
    return kHeight - kBottom - (log_y - low_y) / (high_y - low_y) * (kHeight - kTop - kBottom);
  };
  std::string svg = Format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n",
      kWidth, kHeight);
  for (double x = low_x; x <= high_x; ++x) {
    svg += Format("<path d=\"M%.1f %.1fV%.1f\" stroke=\"#ddd\"/>", place_x(x), place_y(low_y),
                  place_y(high_y));
    svg += Format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">1e%.0f</text>\n", place_x(x),
                  kHeight - kBottom + 18, x);
  }
  for (double y = low_y; y <= high_y; ++y) {
    svg += Format("<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ddd\"/>", place_x(low_x), place_y(y),
                  place_x(high_x));
    svg += Format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">1e%.0f</text>\n", kLeft - 6,
                  place_y(y) + 4, y);
  }
  svg += Format("<text x=\"%.1f\" y=\"%.1f\">size (B)</text>\n", kLeft, kHeight - 12);
  svg += Format("<text x=\"6\" y=\"%.1f\">bus bandwidth (B/s)</text>\n", kTop - 6);
  size_t number = 0;
  for (const auto& [key, series] : BySeries(measurements)) {
    const char* const colour = kColours[number % kColours.size()];
    std::string points;
    for (const Measurement& one : series) {
      points += Format("%.1f,%.1f ",
                       place_x(std::log10(static_cast<double>(std::max<int64_t>(one.bytes, 1)))),
                       place_y(std::log10(std::max(one.bus_bandwidth(), 1.0))));
    }
    svg += "<polyline fill=\"none\" stroke=\"" + std::string(colour) + "\" points=\"" + points +
           "\"/>\n";
    svg +=
        Format("<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\">%s, %d ranks</text>\n", kWidth - kRight + 8,
               kTop + 14.0 * static_cast<double>(++number), colour, Name(key.first), key.second);
  }
  return svg + "</svg>\n";
}

std::string PredictionTable(double parameters, const LinearCost& link) {
  const double bytes = 4 * parameters;
  std::string text =
      Format("%.0f fp32 parameters (%.2f GB), links of %.1f us + size / %.3f GB/s, predicted:\n",
             parameters, bytes / kGiga, link.alpha_s / kMicro, 1 / (link.beta_s_per_byte * kGiga));
  text += Format("%5s %22s %10s\n", "ranks", "parameter server (s)", "ring (s)");
  for (int ranks = 2; ranks <= 64; ranks *= 2) {
    text += Format("%5d %22.2f %10.2f\n", ranks, ParameterServerSeconds(ranks, bytes, link),
                   RingSeconds(ranks, bytes, link));
  }
  return text;
}

}  // namespace dslaunch
