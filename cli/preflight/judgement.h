// Which nodes are slow, by comparison with the others. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dslaunch {

enum class FigureKind {
  kCoreSpeed,  // operations per second
  kCpuShare,   // 0 to 1
  kMemory,     // bytes per second, as all below except kRoundTrip
  kLogFolder,
  kCheckpointFolder,
  kGemm,  // operations per second
  kToDevice,
  kFromDevice,
  kDeviceMemory,
  kSending,
  kReceiving,
  kRoundTrip,  // seconds; less is better
};
inline constexpr size_t kFigureKinds = 12;

// A node below this part of the median is slow.
inline constexpr double kSlowPart = 0.8;

// One measured value.
struct Figure {
  FigureKind kind = FigureKind::kCoreSpeed;
  size_t node = 0;
  std::string part = {};  // the device or folder; empty if the node has one such value
  double value = 0;       // positive
  // Part of the time (0 to 1) that the measuring threads waited for a processor. The node may be
  // better by that.
  double starved = 0;
};

// Returns the name for tables: "send", "GEMM".
const char* KindName(FigureKind kind);

// Returns the value with its unit: "9.41 Gbit/s", "312 TFLOP/s", "0.11 ms", "25 %".
std::string FigureText(FigureKind kind, double value);

// Adds `measured` to `figures`. Of two values of the same kind, node and part it keeps the better
// one, because disturbances only make values worse.
void KeepBest(std::vector<Figure>& figures, const std::vector<Figure>& measured);

// The median of a kind; the mean of the two in the middle. 0 if there is no figure of the kind.
double MedianOf(const std::vector<Figure>& figures, FigureKind kind);

struct SlowFigure {
  Figure figure;
  double median = 0;  // median of the figure's kind
};

// Returns the figures that are worse than kSlowPart of the median of their kind in `reference`, in
// the order of `figures`. A round trip must besides be 0.2 ms longer than the median, because
// shorter differences are the switches', not the node's, and a share of the processor 0.1 below the
// median. A figure counts as it would be without starvation, and not at all if that was more than
// half of the time (for a round trip, more than 0.05). Skips kinds of fewer than two nodes.
std::vector<SlowFigure> FindSlow(const std::vector<Figure>& figures,
                                 const std::vector<Figure>& reference);

// Returns the nodes of `slow`, ascending, each once; with `of_network`, those whose network is
// slow, else those with another slow figure.
std::vector<size_t> NodesOf(const std::vector<SlowFigure>& slow, bool of_network);

// Whether two nodes measure figures of this kind.
bool IsOfNetwork(FigureKind kind);

}  // namespace dslaunch
