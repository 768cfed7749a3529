// Findings and a table from measurements of nodes. Pure.
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
  std::string failure;  // why it was not measured; else empty
};

// The last measurement between two nodes.
struct MeasuredLink {
  NodePair pair;
  std::string trouble;  // why it failed; else empty
};

// All measurements, also the repeated ones of suspects.
struct Bench {
  std::vector<MeasuredNode> nodes;
  std::vector<Figure> figures;  // `node`: index into `nodes`; the best of all looks
  // Figures of the first look at all nodes, which were measured alike. Their medians count.
  std::vector<Figure> first;
  std::vector<MeasuredLink> links;
  uint32_t gpus_needed = 0;  // GPUs that must be free on each node
  int64_t took_ms = 0;
};

// Returns the figures in a node's measurement; unmeasured ones are missing.
std::vector<Figure> FiguresOf(const pb::NodeMeasurement& measured, size_t node);

// Returns the figures of both nodes of a pair.
std::vector<Figure> FiguresOf(const pb::LinkMeasurement& measured, const NodePair& pair);

struct BenchFinding {
  size_t node = 0;
  std::string check;   // one or two words
  bool fails = false;  // the node cannot be used; else it is slow
  std::string seen;
  std::string hint;
};

// Returns what is wrong with the nodes, by node: slow figures with their value and the median, and
// facts that need no comparison, such as a failed health command or uncorrected memory errors.
std::vector<BenchFinding> JudgeBench(const Bench& bench);

// Returns a row for each node with its figures, and a row with the medians. Of several devices the
// slowest is shown. `indent` begins each line.
std::string BenchTable(const Bench& bench, const std::string& indent);

}  // namespace dslaunch
