// Derives findings and a table from measurements of nodes. All functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/preflight/judgement.h"
#include "cli/preflight/pair_rounds.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

struct MeasuredNode {
  std::string name;
  std::optional<pb::NodeMeasurement> measured;
  std::string failure;  // reason why the node was not measured; otherwise empty
};

// The last measurement of the network between two nodes.
struct MeasuredLink {
  NodePair pair;
  std::string trouble;  // reason why the measurement failed; otherwise empty
};

// All measurements, including the repeated measurements of suspects.
struct Bench {
  std::vector<MeasuredNode> nodes;
  std::vector<Figure> figures;  // best figures of all measurements; `node` is an index in `nodes`
  // Figures of the first measurement, which treated all nodes alike, so their medians are used.
  std::vector<Figure> first;
  std::vector<MeasuredLink> links;
  uint32_t gpus_needed = 0;  // number of GPUs that must be free on each node
  int64_t took_ms = 0;
};

// Returns the figures in a node's measurement; unmeasured figures are missing.
std::vector<Figure> FiguresOf(const pb::NodeMeasurement& measured, size_t node);

// Returns the figures of both nodes of a pair.
std::vector<Figure> FiguresOf(const pb::LinkMeasurement& measured, const NodePair& pair);

struct BenchFinding {
  size_t node = 0;
  std::string check;   // name of the check: one or two words
  bool fails = false;  // true if the node is unusable; false if it is only slow
  std::string seen;
  std::string hint;
};

// Returns the problems of the nodes, sorted by node. A problem is a slow figure, with its value and
// the median, or a fact that needs no comparison, such as a failed health command or uncorrected
// memory errors.
std::vector<BenchFinding> JudgeBench(const Bench& bench);

// Returns a row for each node with its figures, and a row with the medians. Of several devices the
// slowest is shown. Each line begins with `indent`.
std::string BenchTable(const Bench& bench, const std::string& indent);

}  // namespace dslaunch
