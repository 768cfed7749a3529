#include "cli/outcome.h"

#include "rendezvous/cause.h"

namespace dslaunch {
namespace {

bool IsBad(const pb::Cause& cause) { return cause.kind() != pb::Cause::NONE; }

std::string LostMessage(const NodeEnd& node) {
  return node.name + " was lost: " + node.lost_reason;
}

// The front end's own view of a lost node says more (its keeper's last words) than the rendezvous,
// which only saw a connection end.
pb::Cause WithDetail(pb::Cause cause, const std::vector<NodeEnd>& nodes) {
  if (cause.kind() != pb::Cause::NODE_LOST || cause.node_index() >= nodes.size()) return cause;
  const NodeEnd& node = nodes[cause.node_index()];
  if (!node.done && !node.lost_reason.empty()) cause.set_message(LostMessage(node));
  return cause;
}

pb::Cause FirstCause(const std::optional<pb::Cause>& interrupted,
                     const std::vector<NodeEnd>& nodes) {
  if (interrupted) return *interrupted;
  // A node that only lost its rendezvous knows less than one that heard the decision.
  const pb::Cause* best = nullptr;
  for (const NodeEnd& node : nodes) {
    if (!node.outcome || !IsBad(*node.outcome)) continue;
    const bool better = best == nullptr || (best->kind() == pb::Cause::NODE_LOST &&
                                            node.outcome->kind() != pb::Cause::NODE_LOST);
    if (better) best = &*node.outcome;
  }
  if (best != nullptr) return WithDetail(*best, nodes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].done) {
      return MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(i), ExitCode::kUnavailable,
                       LostMessage(nodes[i]));
    }
  }
  return pb::Cause();
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
