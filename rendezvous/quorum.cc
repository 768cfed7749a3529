#include "rendezvous/quorum.h"

#include <algorithm>
#include <map>

#include "rendezvous/cause.h"

namespace dslaunch {
namespace {

QuorumDecision Fail(pb::Cause::Kind kind, uint32_t node_index, ExitCode code, std::string reason) {
  QuorumDecision decision;
  decision.verdict = QuorumDecision::Verdict::kFail;
  decision.cause = MakeCause(kind, node_index, code, reason);
  decision.reason = std::move(reason);
  return decision;
}

std::string JoinNames(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

QuorumDecision DecideQuorum(Clock::time_point now, const std::vector<Member>& members,
                            const QuorumOptions& options) {
  std::map<std::string, uint32_t> seen;
  for (const Member& member : members) {
    const auto [other, is_new] = seen.emplace(member.identity, member.node_index);
    if (!is_new && !options.one_machine) {
      return Fail(pb::Cause::START_FAILED, member.node_index, ExitCode::kBadInput,
                  options.nodes[other->second].name() + " and " +
                      options.nodes[member.node_index].name() +
                      " are the same machine; keep one of the two names in the hostfile and give "
                      "it all the slots");
    }
  }
  std::vector<std::string> missing;
  uint32_t first_missing = 0;
  for (uint32_t index = options.nodes.size(); index-- > 0;) {
    if (std::none_of(members.begin(), members.end(),
                     [&](const Member& m) { return m.node_index == index; })) {
      missing.insert(missing.begin(), options.nodes[index].name());
      first_missing = index;
    }
  }
  if (missing.empty()) {
    QuorumDecision decision;
    decision.verdict = QuorumDecision::Verdict::kForm;
    decision.reason = "all " + std::to_string(members.size()) + " nodes joined";
    return decision;
  }
  if (now >= options.join_deadline) {
    return Fail(pb::Cause::TIMED_OUT, first_missing, ExitCode::kTimedOut,
                JoinNames(missing) +
                    " did not join in time; check that a firewall lets the nodes reach " +
                    options.nodes[0].name());
  }
  QuorumDecision decision;
  decision.reason = "waiting for " + JoinNames(missing);
  return decision;
}

RankAssignment AssignRanks(std::vector<Member> members) {
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.node_index < b.node_index; });
  RankAssignment assignment;
  for (const Member& member : members) {
    const auto node_rank = static_cast<uint32_t>(assignment.blocks.size());
    assignment.blocks.push_back(
        {member.node_index, node_rank, assignment.world_size, member.slots});
    assignment.world_size += member.slots;
    if (assignment.master_addr.empty()) assignment.master_addr = member.reached_at;
  }
  if (assignment.master_addr.empty())
    assignment.master_addr = "127.0.0.1";  // nobody comes from elsewhere
  assignment.master_port = members.front().master_port;
  return assignment;
}

}  // namespace dslaunch
