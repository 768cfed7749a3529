// Decides which silent nodes are lost, and when this node may be the one that is cut off.
#include <algorithm>
#include <utility>

#include "base/count.h"
#include "rendezvous/coordinator.h"

namespace dslaunch {
namespace {

// Returns a shorter limit of silence. Nodes that are cut off together do not fall silent at exactly
// the same time: one's heartbeat was just due, and another's is late because a packet was lost. A
// node that has been silent for this long may have been cut off together with one that has reached
// SilenceLimit.
milliseconds FadesAfter(const pb::Timeouts& timeouts) { return SilenceLimit(timeouts) / 2; }

}  // namespace

// A tick that is late by half of a limit means that this process could not run. The agents'
// messages are then still unread, so no node is suspected.
void Coordinator::CheckSilence(Clock::duration since_last_tick, Clock::time_point now) {
  const milliseconds dead(options_.timeouts.dead_ms());
  const milliseconds suspect(options_.timeouts.suspect_ms());
  std::vector<Participant*> lost;
  for (Participant& participant : Joined()) {
    if (participant.lost_in) continue;
    if (since_last_tick >= dead / 2) {
      participant.last_seen = now;
      for (auto& [rank, progress] : participant.progress) progress.steps.step_at = now;
    }
    const Clock::duration silent = now - participant.last_seen;
    if (silent >= SilenceLimit(options_.timeouts)) {
      lost.push_back(&participant);
    } else if (silent >= suspect && since_last_tick < suspect / 2 &&
               !std::exchange(participant.suspect, true)) {
      Notify("no heartbeat from " + NodeName(participant.member.node_index) + " for " +
             WholeSeconds(silent) + "; after " + Seconds(dead.count()) + " it counts as lost");
    }
  }
  std::ranges::stable_sort(lost, {}, &Participant::last_seen);
  const std::string why = "no heartbeat for " + Seconds(dead.count());
  if (!MayBeCutOff(lost, why, now)) LoseTogether(std::move(lost), why, Fence::kYes, now);
}

// Refusing the silent nodes would end them although they may be healthy, with a front end or a
// majority that can continue the job without this node.
bool Coordinator::MayBeCutOff(const std::vector<Participant*>& silent, const std::string& why,
                              Clock::time_point now) {
  const bool has_ranks = phase_ >= Phase::kStarting && phase_ <= Phase::kWaiting;
  const Participant& own = participants_[options_.rendezvous_node];
  const bool can_be_told = own.has_joined && !own.lost_in && std::ranges::count(silent, &own) == 0;
  if (silent.empty() || !has_ranks || !can_be_told || !ReceivesFromTooFew(now)) {
    cut_off_at_.reset();
    return false;
  }
  // The other nodes will reach the limit soon unless one of them sends a heartbeat.
  const milliseconds limit = SilenceLimit(options_.timeouts);
  const bool all_are_silent = std::ranges::all_of(Joined(), [&](const Participant& participant) {
    return participant.lost_in || now - participant.last_seen < FadesAfter(options_.timeouts) ||
           now - participant.last_seen >= limit;
  });
  if (!all_are_silent) return true;
  if (options_.policy.max_restarts() == 0) return StopJobIfCutOff(silent, now);
  if (!cut_off_at_) {
    cut_off_at_ = now;
    pb::RendezvousMessage message;
    *message.mutable_cut_off()->mutable_cause() = LossOfAll(silent, why);
    Send(own.session, std::move(message));
  }
  // This node's agent ends the rendezvous at once if another one can be chosen; otherwise the nodes
  // are lost after one heartbeat.
  return now - *cut_off_at_ < milliseconds(options_.timeouts.heartbeat_ms());
}

// Ends a job that may not restart. If several nodes fell silent together, the cause is this node's
// view, because none of them is known to have failed. A single silent node is declared lost as
// usual.
bool Coordinator::StopJobIfCutOff(const std::vector<Participant*>& silent, Clock::time_point now) {
  if (silent.size() < 2) return false;
  reports_.clear();
  cause_is_final_ = true;
  const uint32_t own = options_.rendezvous_node;
  Stop(MakeNodeCause(pb::Cause::NODE_LOST, own, ExitCode::kUnavailable,
                     NodeName(own) + " received no heartbeat from any other node for " +
                         Seconds(options_.timeouts.dead_ms()) +
                         "; check its network, and that no firewall drops what is sent to it"),
       now);
  return true;
}

bool Coordinator::ReceivesFromTooFew(Clock::time_point now) const {
  const auto is_heard = [&](const Participant& participant) {
    return participant.has_joined && !participant.lost_in &&
           now - participant.last_seen < FadesAfter(options_.timeouts);
  };
  if (std::ranges::count_if(Joined(), is_heard) <= 1) return true;  // only this node itself
  if (!majority_) return false;
  const auto voters = std::ranges::count_if(
      options_.voters, [&](uint32_t voter) { return is_heard(participants_[voter]); });
  return std::cmp_less(voters, options_.majority);
}

}  // namespace dslaunch
