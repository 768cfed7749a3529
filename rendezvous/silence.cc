#include "rendezvous/silence.h"

#include <algorithm>
#include <utility>

#include "base/count.h"

namespace dslaunch {

// A tick that is late by half of a limit means that this process could not run. The messages of the
// agents are then still unread, so no node is suspected or lost.
SilenceDecision SilentNodes::Check(Clock::duration since_last_tick, bool has_ranks,
                                   Clock::time_point now) {
  const milliseconds dead(timeouts_.dead_ms());
  const milliseconds suspect(timeouts_.suspect_ms());
  SilenceDecision decision;
  for (Participant& participant : roster_.Joined()) {
    if (participant.lost_in || participant.HasLeft()) continue;
    if (since_last_tick >= dead / 2) participant.last_seen = now;
    const Clock::duration silent = now - participant.last_seen;
    if (silent >= SilenceLimit(timeouts_)) {
      decision.lost.push_back(&participant);
    } else if (silent >= suspect && since_last_tick < suspect / 2 &&
               !std::exchange(participant.suspect, true)) {
      roster_.Notify("no heartbeat from " + roster_.NodeName(participant.member.node_index) +
                     " for " + WholeSeconds(silent) + "; after " + Seconds(dead.count()) +
                     " it counts as lost");
    }
  }
  std::ranges::stable_sort(decision.lost, {}, &Participant::last_seen);
  decision.why = "no heartbeat for " + Seconds(dead.count());
  if (MayBeCutOff(decision, has_ranks, now)) decision.lost.clear();
  return decision;
}

// This node may be cut off while the silent nodes are healthy. A front end or a majority may then
// continue the job without this node, and refusing the silent nodes would end their ranks. The
// function therefore returns true instead of declaring them lost.
bool SilentNodes::MayBeCutOff(SilenceDecision& decision, bool has_ranks, Clock::time_point now) {
  const std::vector<Participant*>& silent = decision.lost;
  const Participant* const own = roster_.Own();
  const bool can_be_told = own != nullptr && std::ranges::count(silent, own) == 0;
  if (silent.empty() || !has_ranks || !can_be_told || !ReceivesFromTooFew(now)) {
    cut_off_at_.reset();
    return false;
  }
  // Other nodes may reach the limit soon unless they send a heartbeat, so the decision waits for
  // them.
  const auto may_follow = [&](const Participant& participant) {
    return !participant.lost_in && !IsHeard(participant, now) &&
           now - participant.last_seen < SilenceLimit(timeouts_);
  };
  if (std::ranges::any_of(roster_.Joined(), may_follow)) return true;
  if (policy_.max_restarts() == 0) {
    // Several nodes that fell silent together have probably not all failed, so the cause is that
    // this node is cut off. A single silent node is declared lost as usual.
    if (silent.size() < 2) return false;
    const uint32_t index = own->member.node_index;
    decision.stop = roster_.MakeNodeCause(
        pb::Cause::NODE_LOST, index, ExitCode::kUnavailable,
        roster_.NodeName(index) + " received no heartbeat from any other node for " +
            Seconds(timeouts_.dead_ms()) +
            "; check its network, and that no firewall drops what is sent to it");
    return true;
  }
  if (!cut_off_at_) {
    cut_off_at_ = now;
    pb::RendezvousMessage message;
    *message.mutable_cut_off()->mutable_cause() = roster_.LossOf(silent, decision.why);
    roster_.Send(own->session, std::move(message));
  }
  // If another node can host the rendezvous, this node's agent ends the rendezvous at once.
  // Otherwise the silent nodes are declared lost after one heartbeat.
  return now - *cut_off_at_ < milliseconds(timeouts_.heartbeat_ms());
}

// Nodes that are cut off together do not fall silent at exactly the same time. The heartbeat of one
// node may just have been due, and the heartbeat of another may be late because a packet was lost.
// A node may thus have been cut off together with a node that has reached SilenceLimit, so this
// limit is half of SilenceLimit.
bool SilentNodes::IsHeard(const Participant& participant, Clock::time_point now) const {
  return participant.has_joined && !participant.lost_in &&
         now - participant.last_seen < SilenceLimit(timeouts_) / 2;
}

bool SilentNodes::ReceivesFromTooFew(Clock::time_point now) const {
  const auto is_heard = [&](const Participant& participant) { return IsHeard(participant, now); };
  // Only this node itself sends messages, so too few nodes are left.
  if (std::ranges::count_if(roster_.Joined(), is_heard) <= 1) return true;
  return majority_ && !majority_->IsMetBy([&](uint32_t voter) { return is_heard(roster_[voter]); });
}

}  // namespace dslaunch
