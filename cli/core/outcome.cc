#include "cli/core/outcome.h"

#include <algorithm>
#include <csignal>

#include "base/exit_code.h"
#include "base/text/split_lines.h"
#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

pb::Cause Lost(const std::vector<NodeEnd>& nodes, uint32_t index) {
  return MakeCause(pb::Cause::NODE_LOST, index, ExitCode::kUnavailable, LostMessage(nodes[index]));
}

bool HasFinalStatus(const NodeEnd& node) { return node.done && node.done->completed(); }

// Returns the final status that the rendezvous sent, preferably as received from the rendezvous'
// own node; nullptr if no node forwarded a final status.
const pb::NodeDone* FinalStatus(const JobInfo& info) {
  const std::vector<NodeEnd>& nodes = info.nodes;
  if (info.rendezvous_node < nodes.size() && HasFinalStatus(nodes[info.rendezvous_node]))
    return &*nodes[info.rendezvous_node].done;
  const auto told = std::ranges::find_if(nodes, HasFinalStatus);
  return told == nodes.end() ? nullptr : &*told->done;
}

std::vector<uint32_t> Members(const JobInfo& info, const pb::NodeDone* final_status) {
  std::vector<uint32_t> members = info.members;
  if (final_status != nullptr && final_status->members().bounds_size() > 0)
    members = IndexesOf(final_status->members(), info.nodes.size());
  if (members.empty()) {
    for (uint32_t i = 0; i < info.nodes.size(); ++i) {
      if (!info.nodes[i].absent) members.push_back(i);
    }
  }
  std::erase_if(members, [&](uint32_t index) { return index >= info.nodes.size(); });
  return members;
}

// Returns the weight of a node's report of the cause; 0 if the report does not count. A node that
// only lost its rendezvous counts less than a node that received the decision. A node that lost the
// front end does not count, because this front end is alive.
int Worth(const NodeEnd& node) {
  if (!node.outcome || IsSuccess(*node.outcome)) return 0;
  if (node.outcome->kind() == pb::Cause::FRONT_END_LOST) return 0;
  return node.outcome->kind() == pb::Cause::NODE_LOST ? 1 : 2;
}

// Returns the cause for a lost node with the last output of the node's supervisor added. Returns
// other causes unchanged, and also a cause without such output.
pb::Cause Explained(const pb::Cause& cause, const std::vector<NodeEnd>& nodes) {
  const uint32_t index = cause.node_index();
  const bool lost_with_words = cause.kind() == pb::Cause::NODE_LOST && index < nodes.size() &&
                               !nodes[index].last_output.empty();
  return lost_with_words ? Lost(nodes, index) : cause;
}

// Returns whether a node that is cut off reported the cause. Such a node reports the other nodes as
// lost, but this front end is connected to them.
bool IsWordOfCutOff(const pb::Cause& cause, const std::vector<NodeEnd>& nodes,
                    const std::vector<uint32_t>& members) {
  const uint32_t accused = cause.node_index();
  return cause.kind() == pb::Cause::NODE_LOST && accused < nodes.size() && nodes[accused].done &&
         std::ranges::any_of(members, [&](uint32_t index) { return !nodes[index].done; });
}

pb::Cause FirstCause(const JobInfo& info, const std::vector<uint32_t>& members,
                     const pb::NodeDone* final_status) {
  const std::vector<NodeEnd>& nodes = info.nodes;
  if (info.interrupted) return *info.interrupted;
  if (info.broke_rules) return *info.broke_rules;
  if (final_status != nullptr && !IsSuccess(final_status->cause()) &&
      !IsWordOfCutOff(final_status->cause(), nodes, members))
    return Explained(final_status->cause(), nodes);
  if (final_status == nullptr) {
    const auto best =
        std::ranges::max_element(members, {}, [&](uint32_t index) { return Worth(nodes[index]); });
    if (best != members.end() && Worth(nodes[*best]) > 0 &&
        !IsWordOfCutOff(*nodes[*best].outcome, nodes, members))
      return Explained(*nodes[*best].outcome, nodes);
  }
  const auto gone =
      std::ranges::find_if(members, [&](uint32_t index) { return !nodes[index].done.has_value(); });
  if (gone != members.end()) return Lost(nodes, *gone);
  if (final_status != nullptr) return {};
  for (const uint32_t index : members) {
    const NodeEnd& node = nodes[index];
    if (node.outcome && !IsSuccess(*node.outcome)) return *node.outcome;
  }
  return {};
}

// Returns the fact that contradicts a reported success; nullopt if none does. The job succeeds only
// if each node has reported the success of its own ranks, and these are all ranks.
std::optional<pb::Cause> MissingSuccess(const JobInfo& info, const std::vector<uint32_t>& members) {
  const auto failure = [&](uint32_t index, const std::string& what) {
    return MakeCause(pb::Cause::INTERNAL, index, ExitCode::kInternal,
                     "the job was reported to have succeeded, but " + what +
                         "; see agent.log in the job's folder on the nodes");
  };
  uint64_t attempt = 0;
  for (const uint32_t index : members) attempt = std::max(attempt, info.nodes[index].ranks.attempt);
  uint64_t ranks = 0, all_succeeded = 0;
  for (const uint32_t index : members) {
    const NodeEnd& node = info.nodes[index];
    const RankReports& reports = node.ranks;
    const bool is_newest = reports.attempt == attempt;
    const uint32_t succeeded = is_newest ? reports.succeeded : 0;
    const uint32_t accounted = succeeded + (is_newest ? reports.tolerated : 0);
    if (accounted == 0 || accounted < reports.count) {
      return failure(index, node.name + " reported the success of " + std::to_string(succeeded) +
                                " of its " + std::to_string(reports.count) + " ranks in attempt " +
                                std::to_string(attempt));
    }
    ranks += accounted;
    all_succeeded += succeeded;
  }
  if (members.empty() || (ranks == info.world_size && all_succeeded > 0)) return std::nullopt;
  return failure(members.front(), "the nodes reported the success of " +
                                      std::to_string(all_succeeded) + " of " +
                                      std::to_string(info.world_size) + " ranks");
}

// Returns whether the cause is a request to stop, from a signal or from the program itself, and
// every rank has saved because of the request.
bool AllSaved(const JobInfo& info, const JobEnd& end) {
  uint64_t attempt = 0;
  for (const uint32_t index : end.members)
    attempt = std::max(attempt, info.nodes[index].ranks.attempt);
  const auto has_saved = [&](uint32_t index) { return info.nodes[index].ranks.saved > 0; };
  return IsStopRequest(end.cause) && std::ranges::any_of(end.members, has_saved) &&
         std::ranges::all_of(end.members, [&](uint32_t index) {
           const RankReports& ranks = info.nodes[index].ranks;
           return ranks.attempt == attempt && ranks.count > 0 &&
                  ranks.saved + ranks.tolerated == ranks.count;
         });
}

// Returns the facts that a node's end adds to the cause; empty if it adds none.
std::string Remark(const JobEnd& end, const NodeEnd& node, uint32_t index) {
  const bool is_cause = end.cause.kind() == pb::Cause::NODE_LOST && end.cause.node_index() == index;
  if (node.absent || is_cause) return "";
  if (!node.done) return LostMessage(node);
  const bool is_member = std::ranges::binary_search(end.members, index);
  const bool was_refused = !is_member && !node.done->completed() && node.outcome;
  return was_refused && !IsSuccess(*node.outcome) ? node.outcome->message() : "";
}

// Returns whether `cause` can result from the signals that Slurm sends to a step when Slurm cancels
// the job.
bool IsEffectOfCancelling(const pb::Cause& cause) {
  switch (cause.kind()) {
    case pb::Cause::INTERRUPTED:
    case pb::Cause::NODE_LOST:
    case pb::Cause::FRONT_END_LOST:
    case pb::Cause::TIMED_OUT:
      return true;
    case pb::Cause::WORKER_SIGNAL:
      return cause.signal() == SIGTERM || cause.signal() == SIGKILL;
    default:
      return false;
  }
}

pb::Cause Cancelled(const std::string& how) {
  return MakeSignalCause(pb::Cause::INTERRUPTED, 0, SIGTERM, "Slurm ended the job: " + how);
}

}  // namespace

std::string LostMessage(const NodeEnd& node) {
  if (node.outcome && node.outcome->kind() == pb::Cause::NODE_LEFT) return node.outcome->message();
  return node.name +
         " was lost: " + (node.last_output.empty() ? node.lost_reason : node.last_output);
}

JobEnd DecideJobEnd(const JobInfo& info) {
  JobEnd end;
  const pb::NodeDone* final_status = FinalStatus(info);
  end.members = Members(info, final_status);
  end.cause = FirstCause(info, end.members, final_status);
  const bool is_cancelled = !info.cancelled.empty() && IsEffectOfCancelling(end.cause);
  if (is_cancelled) end.cause = Cancelled(info.cancelled);
  if (final_status != nullptr)
    end.victims.assign(final_status->victims().begin(), final_status->victims().end());
  end.remarks = info.losses;
  for (uint32_t i = 0; i < info.nodes.size(); ++i) {
    NodeEnd node = info.nodes[i];
    // The launcher prints the same output for each node, so it is not repeated.
    if (is_cancelled) node.last_output.clear();
    std::string remark = Remark(end, node, i);
    if (!remark.empty()) end.remarks.push_back(std::move(remark));
  }
  const bool complete = std::ranges::all_of(end.members, [&](uint32_t index) {
    const std::optional<pb::NodeDone>& done = info.nodes[index].done;
    return done && done->teardown_complete() && done->left().empty();
  });
  if (IsSuccess(end.cause) && !(complete && !end.members.empty())) {
    end.cause = MakeCause(pb::Cause::TIMED_OUT, 0, ExitCode::kTimedOut,
                          "all ranks succeeded, but not every node confirmed its teardown");
  }
  if (IsSuccess(end.cause)) {
    if (std::optional<pb::Cause> missing = MissingSuccess(info, end.members))
      end.cause = *std::move(missing);
  }
  end.exit_code = !IsSuccess(end.cause) ? end.cause.exit_code() : 0;
  if (!IsSuccess(end.cause))  // a failure never exits with 0, or with a code read as 0 by shells
    end.exit_code = FailureCode(end.exit_code, ExitCode::kInternal);
  end.saved_on_request = AllSaved(info, end);
  if (end.saved_on_request) end.exit_code = ToInt(ExitCode::kPreempted);
  return end;
}

}  // namespace dslaunch
