#include "cli/preflight/judgement.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

namespace dslaunch {
namespace {

constexpr double kLeastShare = 0.1;  // least difference of CPU shares that counts as slow
// Least difference of round trips in seconds that counts as slow.
constexpr double kLeastRoundTripS = 0.0002;

constexpr double kMostStarved = 0.5;
constexpr double kMostStarvedRoundTrip = 0.05;

enum class Unit { kFlops, kShare, kBytes, kBits, kTime };

struct KindRow {
  const char* name;
  Unit unit;
};
// The names and units of figures, in the order of FigureKind.
constexpr std::array<KindRow, kFigureKinds> kKinds = {{{"core", Unit::kFlops},
                                                       {"CPU share", Unit::kShare},
                                                       {"memory", Unit::kBytes},
                                                       {"log folder", Unit::kBytes},
                                                       {"checkpoint folder", Unit::kBytes},
                                                       {"GEMM", Unit::kFlops},
                                                       {"to GPU", Unit::kBytes},
                                                       {"from GPU", Unit::kBytes},
                                                       {"GPU memory", Unit::kBytes},
                                                       {"send", Unit::kBits},
                                                       {"receive", Unit::kBits},
                                                       {"round trip", Unit::kTime}}};

const KindRow& RowOf(FigureKind kind) { return kKinds[static_cast<size_t>(kind)]; }

// Returns three significant digits with a prefix for thousands, such as "9.41 G".
std::string Scaled(double value, const char* unit) {
  constexpr std::array kPrefixes = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  char text[48];
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s%s", decimals, value, kPrefixes[prefix], unit);
  return text;
}

bool IsBetter(FigureKind kind, double one, double other) {
  return kind == FigureKind::kRoundTrip ? one < other : one > other;
}

// Returns whether the figure is slow. Precondition: `figure` is starved for at most kMostStarved of
// the time.
bool IsSlow(const Figure& figure, double median) {
  if (figure.kind == FigureKind::kRoundTrip) {
    return figure.starved <= kMostStarvedRoundTrip && figure.value > median / kSlowPart &&
           figure.value > median + kLeastRoundTripS;
  }
  if (figure.kind == FigureKind::kCpuShare && figure.value > median - kLeastShare) return false;
  return figure.value / (1 - figure.starved) < kSlowPart * median;
}

}  // namespace

const char* KindName(FigureKind kind) { return RowOf(kind).name; }

bool IsOfNetwork(FigureKind kind) {
  return kind == FigureKind::kSending || kind == FigureKind::kReceiving ||
         kind == FigureKind::kRoundTrip;
}

std::string FigureText(FigureKind kind, double value) {
  char text[48];
  switch (RowOf(kind).unit) {
    case Unit::kFlops:
      return Scaled(value, "FLOP/s");
    case Unit::kBytes:
      return Scaled(value, "B/s");
    case Unit::kBits:
      return Scaled(8 * value, "bit/s");
    case Unit::kShare:
      std::snprintf(text, sizeof text, "%.0f %%", 100 * value);
      return text;
    case Unit::kTime:
      break;
  }
  std::snprintf(text, sizeof text, "%.2f ms", 1000 * value);
  return text;
}

void KeepBest(std::vector<Figure>& figures, const std::vector<Figure>& measured) {
  for (const Figure& one : measured) {
    const auto same = std::ranges::find_if(figures, [&](const Figure& figure) {
      return figure.kind == one.kind && figure.node == one.node && figure.part == one.part;
    });
    if (same == figures.end()) {
      figures.push_back(one);
      continue;
    }
    // Starvation is the least certain part of a bad value, so the smaller estimate of starvation is
    // kept.
    if (IsBetter(one.kind, one.value, same->value))
      *same = one;
    else if (one.starved < same->starved)
      same->starved = one.starved;
  }
}

double MedianOf(const std::vector<Figure>& figures, FigureKind kind) {
  std::vector<double> values;
  for (const Figure& figure : figures) {
    if (figure.kind == kind) values.push_back(figure.value);
  }
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

std::vector<SlowFigure> FindSlow(const std::vector<Figure>& figures,
                                 const std::vector<Figure>& reference) {
  std::array<double, kFigureKinds> medians{};
  std::array<std::set<size_t>, kFigureKinds> nodes;
  for (const Figure& figure : reference)
    nodes[static_cast<size_t>(figure.kind)].insert(figure.node);
  for (size_t kind = 0; kind < kFigureKinds; ++kind)
    medians[kind] = MedianOf(reference, static_cast<FigureKind>(kind));
  std::vector<SlowFigure> slow;
  for (const Figure& figure : figures) {
    const auto kind = static_cast<size_t>(figure.kind);
    if (figure.starved > kMostStarved || nodes[kind].size() < 2) continue;
    if (IsSlow(figure, medians[kind])) slow.push_back({figure, medians[kind]});
  }
  return slow;
}

std::vector<size_t> NodesOf(const std::vector<SlowFigure>& slow, bool of_network) {
  std::set<size_t> nodes;
  for (const SlowFigure& one : slow) {
    if (IsOfNetwork(one.figure.kind) == of_network) nodes.insert(one.figure.node);
  }
  return {nodes.begin(), nodes.end()};
}

}  // namespace dslaunch
