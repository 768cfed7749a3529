// Decides which nodes are slow, by comparison with the other nodes. All functions are pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dslaunch {

// The kinds of measured values. A kind without a comment is in bytes per second.
enum class FigureKind {
  kCoreSpeed,  // operations per second of a core
  kCpuShare,   // share of a processor, from 0 to 1
  kMemory,
  kLogFolder,
  kCheckpointFolder,
  kGemm,  // operations per second of a matrix product on a device
  kToDevice,
  kFromDevice,
  kDeviceMemory,
  kSending,
  kReceiving,
  kRoundTrip,  // time of a round trip in seconds; less is better
};
inline constexpr size_t kFigureKinds = 12;

// A node is slow if its figure is below this fraction of the median.
inline constexpr double kSlowPart = 0.8;

// A measured value of a node, or of one of its devices or folders.
struct Figure {
  FigureKind kind = FigureKind::kCoreSpeed;
  size_t node = 0;
  std::string part = {};  // device or folder; empty if the node has one value of this kind
  double value = 0;       // measured value, above 0
  // Fraction of the time (0 to 1) in which the measuring threads waited for a processor. The node
  // may be better by that fraction.
  double starved = 0;
};

// Returns the name of a kind for tables, such as "send" or "GEMM".
const char* KindName(FigureKind kind);

// Returns the value with its unit, such as "9.41 Gbit/s", "312 TFLOP/s", "0.11 ms" or "25 %".
std::string FigureText(FigureKind kind, double value);

// Adds `measured` to `figures`. Of two values of the same kind, node and part, keeps the better
// one, because disturbances only make values worse.
void KeepBest(std::vector<Figure>& figures, const std::vector<Figure>& measured);

// Returns the median of a kind, which is the mean of the two middle values of an even number; 0 if
// there is no figure of the kind.
double MedianOf(const std::vector<Figure>& figures, FigureKind kind);

struct SlowFigure {
  Figure figure;
  double median = 0;  // median of the figures of the same kind
};

// Returns the figures that are worse than kSlowPart of the median of their kind in `reference`, in
// the order of `figures`. A round trip must also be 0.2 ms longer than the median, because shorter
// differences are caused by switches, not by the node. A share of the processor must also be 0.1
// below the median. Before the comparison, a figure is corrected by its time without a processor
// (Figure::starved). Figures with more than 0.5 of such time, or 0.05 for a round trip, are
// ignored. Skips kinds with figures of fewer than two nodes.
std::vector<SlowFigure> FindSlow(const std::vector<Figure>& figures,
                                 const std::vector<Figure>& reference);

// Returns the nodes of `slow`, ascending and without duplicates: with `of_network` the nodes whose
// network is slow, else the nodes with another slow figure.
std::vector<size_t> NodesOf(const std::vector<SlowFigure>& slow, bool of_network);

// Returns whether figures of this kind are measured between two nodes.
bool IsOfNetwork(FigureKind kind);

}  // namespace dslaunch
