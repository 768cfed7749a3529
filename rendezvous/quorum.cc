#include "rendezvous/quorum.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

QuorumDecision Fail(pb::Cause::Kind kind, uint32_t node_index, ExitCode code, std::string reason) {
  QuorumDecision decision;
  decision.verdict = QuorumDecision::Verdict::kFail;
  decision.cause = MakeCause(kind, node_index, code, reason);
  decision.reason = std::move(reason);
  return decision;
}

std::string JoinNames(const std::vector<uint32_t>& indexes, const QuorumOptions& options) {
  std::string text;
  for (const uint32_t index : indexes)
    text += (text.empty() ? "" : ", ") + options.nodes[index].name();
  return text;
}

bool Contains(const std::vector<Member>& members, uint32_t index) {
  return std::any_of(members.begin(), members.end(),
                     [&](const Member& member) { return member.node_index == index; });
}

// Returns for each node whether its index is in `indexes`. Takes linear time, because a job may
// have ten thousand nodes.
std::vector<bool> Flags(const std::vector<uint32_t>& indexes, size_t num_nodes) {
  std::vector<bool> flags(num_nodes);
  for (const uint32_t index : indexes) flags[index] = true;
  return flags;
}

// Returns a failure if two members are on the same machine and options.may_share_machine is false.
std::optional<QuorumDecision> RefuseSharedMachine(const std::vector<Member>& members,
                                                  const QuorumOptions& options) {
  if (options.may_share_machine) return std::nullopt;
  std::unordered_map<std::string_view, uint32_t> seen;
  seen.reserve(members.size());
  for (const Member& member : members) {
    const auto [other, is_new] = seen.emplace(member.identity, member.node_index);
    if (is_new) continue;
    return Fail(pb::Cause::START_FAILED, member.node_index, ExitCode::kBadInput,
                options.nodes[other->second].name() + " and " +
                    options.nodes[member.node_index].name() +
                    " are the same machine; keep one of the two names in the hostfile and give "
                    "it all the slots");
  }
  return std::nullopt;
}

}  // namespace

NodeBounds BoundsOf(const std::vector<pb::Node>& nodes, uint32_t min_nodes, uint32_t max_nodes) {
  const auto regular = static_cast<uint32_t>(std::count_if(
      nodes.begin(), nodes.end(), [](const pb::Node& node) { return !node.spare(); }));
  NodeBounds bounds;
  bounds.min = min_nodes > 0 ? min_nodes : regular;
  bounds.max = std::max(bounds.min, std::min(max_nodes, regular));
  return bounds;
}

std::vector<Member> PickMembers(const std::vector<Member>& members, const QuorumOptions& options) {
  const NodeBounds bounds = BoundsOf(options.nodes, options.min_nodes, options.max_nodes);
  std::vector<const Member*> waiting;
  waiting.reserve(members.size());
  for (const Member& member : members) waiting.push_back(&member);
  std::ranges::sort(waiting, {}, &Member::node_index);
  std::vector<Member> picked;
  picked.reserve(std::min<size_t>(bounds.max, members.size()));
  const auto pick = [&](uint32_t up_to, auto wanted) {
    for (const Member* member : waiting) {
      if (picked.size() < up_to && wanted(member->node_index)) picked.push_back(*member);
    }
  };
  const auto spare = [&](uint32_t index) { return options.nodes[index].spare(); };
  const std::vector<bool> aside = Flags(options.set_aside, options.nodes.size());
  const std::vector<bool> unfit = Flags(options.unfit, options.nodes.size());
  const auto is_good = [&](uint32_t index) { return !aside[index] && !unfit[index]; };
  pick(bounds.max, [&](uint32_t index) { return is_good(index) && !spare(index); });
  pick(bounds.max, [&](uint32_t index) { return is_good(index) && spare(index); });
  pick(bounds.min, [&](uint32_t index) { return aside[index] && !unfit[index]; });
  pick(bounds.min, [&](uint32_t index) { return unfit[index]; });
  std::ranges::sort(picked, {}, &Member::node_index);
  return picked;
}

QuorumDecision DecideQuorum(Clock::time_point now, const std::vector<Member>& members,
                            const QuorumOptions& options) {
  if (std::optional<QuorumDecision> refusal = RefuseSharedMachine(members, options))
    return *std::move(refusal);
  const NodeBounds bounds = BoundsOf(options.nodes, options.min_nodes, options.max_nodes);
  std::vector<Member> picked = PickMembers(members, options);
  std::vector<uint32_t> missing;
  std::vector<uint32_t> absent;
  std::vector<bool> joined(options.nodes.size());
  for (const Member& member : members) joined[member.node_index] = true;
  const std::vector<bool> not_awaited = Flags(options.absent, options.nodes.size());
  for (uint32_t index = 0; index < options.nodes.size(); ++index) {
    if (joined[index]) continue;
    if (not_awaited[index]) {
      absent.push_back(index);
    } else if (!options.nodes[index].spare() || picked.size() < bounds.max) {
      missing.push_back(index);
    }
  }
  const bool late = now >= options.join_deadline;
  QuorumDecision decision;
  if (picked.size() >= bounds.min && (missing.empty() || late)) {
    decision.verdict = QuorumDecision::Verdict::kForm;
    std::vector<uint32_t> taken;
    for (const Member& member : picked) taken.push_back(member.node_index);
    decision.reason = JoinNames(taken, options) + (taken.size() == 1 ? " gets" : " get") + " ranks";
    absent.insert(absent.end(), missing.begin(), missing.end());
    if (!absent.empty()) decision.reason += "; without " + JoinNames(absent, options);
    const auto name_picked = [&](const std::vector<uint32_t>& indexes, const char* why) {
      for (const uint32_t index : indexes) {
        if (!Contains(picked, index)) continue;
        decision.reason += "; " + options.nodes[index].name() + " too, though it " + why +
                           ": fewer than " + std::to_string(bounds.min) + " nodes would remain";
      }
    };
    name_picked(options.set_aside, "failed often");
    name_picked(options.unfit, "is unfit");
    decision.members = std::move(picked);
    return decision;
  }
  if (!late) {
    decision.reason =
        "waiting for " + (missing.empty() ? "another node" : JoinNames(missing, options));
    return decision;
  }
  if (!missing.empty()) {
    return Fail(pb::Cause::TIMED_OUT, missing.front(), ExitCode::kTimedOut,
                JoinNames(missing, options) +
                    " did not join in time; check that a firewall lets the nodes reach " +
                    options.nodes[options.rendezvous_node].name());
  }
  return Fail(pb::Cause::TIMED_OUT, absent.empty() ? 0 : absent.front(), ExitCode::kTimedOut,
              "only " + std::to_string(picked.size()) + " of at least " +
                  std::to_string(bounds.min) + " nodes are available, and no other joined in time");
}

pb::Assignment AssignmentOf(const RankNumbering& ranks, const RankBlock& block) {
  pb::Assignment assignment;
  assignment.set_first_rank(block.first_rank);
  assignment.set_world_size(ranks.world_size);
  assignment.set_node_rank(block.node_rank);
  assignment.set_num_nodes(static_cast<uint32_t>(ranks.blocks.size()));
  return assignment;
}

std::vector<RolePlace> PlacesInRoles(const std::vector<Member>& members) {
  std::map<std::string, uint32_t> sizes;
  std::vector<RolePlace> places;
  for (const Member& member : members) {
    uint32_t& size = sizes[member.role];
    places.push_back({.first_rank = size});
    size += member.slots;
  }
  for (size_t i = 0; i < members.size(); ++i) places[i].world_size = sizes[members[i].role];
  return places;
}

RankAssignment AssignRanks(std::vector<Member> members) {
  std::ranges::sort(members, {}, &Member::node_index);
  RankAssignment assignment;
  assignment.roles = PlacesInRoles(members);
  std::vector<NodeSlots> with_ranks;
  with_ranks.reserve(members.size());
  for (const Member& member : members) {
    with_ranks.push_back({member.node_index, member.slots});
    if (assignment.master_addr.empty()) assignment.master_addr = member.reached_at;
  }
  assignment.ranks = NumberRanks(std::move(with_ranks));
  // Other nodes reach the rendezvous node by the address that they used for joining, and any other
  // node by the address of its connection. The first member decides which address applies.
  const Member& first = members.front();
  if (!first.reached_at.empty()) assignment.master_addr = first.address;
  if (assignment.master_addr.empty())
    assignment.master_addr = "127.0.0.1";  // used if all nodes are this machine
  assignment.master_port = first.master_port;
  assignment.link_port = first.link_port;
  return assignment;
}

}  // namespace dslaunch
