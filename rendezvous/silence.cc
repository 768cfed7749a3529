#include "rendezvous/silence.h"

#include <algorithm>
#include <utility>

#include "base/count.h"

namespace dslaunch {

// A tick that is late by half of a limit means that this process could not run. The agents'
// messages are then still unread, so no node is suspected or lost.
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

// Returns true instead of declaring the silent nodes lost if this node may be cut off. The nodes
// may be healthy, with a front end or a majority that can continue the job without this node, and
// refusing them would end them.
bool SilentNodes::MayBeCutOff(SilenceDecision& decision, bool has_ranks, Clock::time_point now) {
  const std::vector<Participant*>& silent = decision.lost;
  const Participant* const own = roster_.Own();
  const bool can_be_told = own != nullptr && std::ranges::count(silent, own) == 0;
  if (silent.empty() || !has_ranks || !can_be_told || !ReceivesFromTooFew(now)) {
    cut_off_at_.reset();
    return false;
  }
  // Wait for the other nodes, which will reach the limit soon unless one of them sends a heartbeat.
  const auto may_follow = [&](const Participant& participant) {
    return !participant.lost_in && !IsHeard(participant, now) &&
           now - participant.last_seen < SilenceLimit(timeouts_);
  };
  if (std::ranges::any_of(roster_.Joined(), may_follow)) return true;
  if (policy_.max_restarts() == 0) {
    // None of several nodes that fell silent together is known to have failed, so the cause is that
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
  // This node's agent ends the rendezvous at once if another node can host it. Otherwise the silent
  // nodes are declared lost after one heartbeat.
  return now - *cut_off_at_ < milliseconds(timeouts_.heartbeat_ms());
}

// The limit is half of SilenceLimit, because nodes that are cut off together do not fall silent at
// exactly the same time: the heartbeat of one node was just due, and the heartbeat of another is
// late because a packet was lost. A node that has been silent for this long may have been cut off
// together with a node that has reached SilenceLimit.
bool SilentNodes::IsHeard(const Participant& participant, Clock::time_point now) const {
  return participant.has_joined && !participant.lost_in &&
         now - participant.last_seen < SilenceLimit(timeouts_) / 2;
}

bool SilentNodes::ReceivesFromTooFew(Clock::time_point now) const {
  const auto is_heard = [&](const Participant& participant) { return IsHeard(participant, now); };
  if (std::ranges::count_if(roster_.Joined(), is_heard) <= 1) return true;  // only this node itself
  return majority_ && !majority_->IsMetBy([&](uint32_t voter) { return is_heard(roster_[voter]); });
}

}  // namespace dslaunch
