#include "cli/option_values.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace dslaunch {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

double ReadDouble(const std::string& option, const char* what, const std::string& text, double min,
                  double max) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() ||
      !(value >= min && value <= max)) {
    throw CLI::ValidationError(option + " must be " + what + " " + Number(min) + " to " +
                               Number(max) + ", not " + Quoted(text));
  }
  return value;
}

}  // namespace

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

double ReadNumber(const std::string& option, const std::string& text, double min, double max) {
  return ReadDouble(option, "a number,", text, min, max);
}

int64_t ReadSecondsAsMs(const std::string& option, const std::string& text, double min_s,
                        double max_s) {
  return std::llround(ReadDouble(option, "seconds,", text, min_s, max_s) * 1000);
}

Tee ReadTee(const std::string& text) {
  constexpr int kMaxRank = (1 << 24) - 1;
  if (text == "all") return {true, {}};
  if (text == "none") return {false, {}};
  Tee tee{false, {}};
  if (text.empty() || text.back() == ',') {
    throw CLI::ValidationError("--tee must be all, none or ranks such as 0,3, not " + Quoted(text));
  }
  for (const std::string& rank : CLI::detail::split(text, ',')) {
    tee.ranks.push_back(ReadWhole<int>("--tee: each rank", rank, 0, kMaxRank));
  }
  std::sort(tee.ranks.begin(), tee.ranks.end());
  tee.ranks.erase(std::unique(tee.ranks.begin(), tee.ranks.end()), tee.ranks.end());
  return tee;
}

NodeRange ReadNodes(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) {
    return {ReadWhole<int>("--nnodes", text, 1, kMaxNodes), std::nullopt};
  }
  const NodeRange range{
      ReadWhole<int>("--nnodes MIN:MAX: each of them", text.substr(0, colon), 1, kMaxNodes),
      ReadWhole<int>("--nnodes MIN:MAX: each of them", text.substr(colon + 1), 1, kMaxNodes)};
  if (range.min > *range.max) {
    throw CLI::ValidationError("--nnodes MIN:MAX: MIN must not be more than MAX, as in " +
                               Quoted(text));
  }
  return range;
}

}  // namespace dslaunch
