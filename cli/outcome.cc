#include "cli/outcome.h"

#include <algorithm>

#include "rendezvous/cause.h"

namespace dslaunch {
namespace {

bool IsBad(const pb::Cause& cause) { return cause.kind() != pb::Cause::NONE; }

std::string LostMessage(const NodeEnd& node) {
  return node.name + " was lost: " + (node.last_words.empty() ? node.lost_reason : node.last_words);
}

pb::Cause Lost(const std::vector<NodeEnd>& nodes, size_t index) {
  return MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(index), ExitCode::kUnavailable,
                   LostMessage(nodes[index]));
}

// How much a node's word for the cause is worth; 0 is nothing. One that only lost its rendezvous
// knows less than one that heard the decision, and one that lost the front end knows nothing, for
// we are here.
int Worth(const NodeEnd& node) {
  if (!node.outcome || !IsBad(*node.outcome)) return 0;
  if (node.outcome->kind() == pb::Cause::FRONT_END_LOST) return 0;
  return node.outcome->kind() == pb::Cause::NODE_LOST ? 1 : 2;
}

pb::Cause FirstCause(const std::optional<pb::Cause>& interrupted,
                     const std::vector<NodeEnd>& nodes) {
  if (interrupted) return *interrupted;
  const auto best = std::ranges::max_element(nodes, {}, Worth);
  if (Worth(*best) > 0) {
    const uint32_t index = best->outcome->node_index();
    const bool lost_with_words = best->outcome->kind() == pb::Cause::NODE_LOST &&
                                 index < nodes.size() && !nodes[index].last_words.empty();
    return lost_with_words ? Lost(nodes, index) : *best->outcome;
  }
  const auto gone = std::ranges::find(nodes, false, &NodeEnd::done);
  if (gone != nodes.end()) return Lost(nodes, static_cast<size_t>(gone - nodes.begin()));
  const auto confused =
      std::ranges::find_if(nodes, [](const NodeEnd& n) { return n.outcome && IsBad(*n.outcome); });
  return confused == nodes.end() ? pb::Cause() : *confused->outcome;
}

}  // namespace

JobEnd DecideJobEnd(const std::optional<pb::Cause>& interrupted,
                    const std::vector<NodeEnd>& nodes) {
  JobEnd end;
  end.cause = FirstCause(interrupted, nodes);
  bool complete = true;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodeEnd& node = nodes[i];
    complete = complete && node.done && node.teardown_complete && node.left_pids.empty();
    if (!node.done && !(end.cause.kind() == pb::Cause::NODE_LOST && end.cause.node_index() == i)) {
      end.remarks.push_back(LostMessage(node));
    }
    if (node.left_pids.empty()) continue;
    std::string pids;
    for (const int pid : node.left_pids) pids += " " + std::to_string(pid);
    end.remarks.push_back(node.name + ": could not end process" + pids +
                          "; look at it there with ps");
  }
  if (!IsBad(end.cause) && !complete) {
    end.cause = MakeCause(pb::Cause::TIMED_OUT, 0, ExitCode::kTimedOut,
                          "every rank ended well, but not every node said that it is empty");
  }
  end.exit_code = end.cause.exit_code();
  if (IsBad(end.cause) && end.exit_code == 0)
    end.exit_code = ToInt(ExitCode::kInternal);  // never 0 after a failure
  return end;
}

}  // namespace dslaunch
