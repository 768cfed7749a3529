#include "rendezvous/inspection.h"

#include <utility>

namespace dslaunch {

std::set<uint32_t> SendInspect(
    Roster& roster, const pb::Inspect& inspect, size_t most,
    const std::function<bool(const Participant& participant, uint32_t rank)>& is_wanted) {
  std::set<uint32_t> ranks;
  for (const Participant& participant : roster.Joined()) {
    if (!participant.in_attempt || participant.lost_in) continue;
    pb::RendezvousMessage message;
    *message.mutable_inspect() = inspect;
    for (uint32_t slot = 0; slot < participant.member.slots && ranks.size() < most; ++slot) {
      const uint32_t rank = participant.first_rank + slot;
      if (!is_wanted(participant, rank)) continue;
      message.mutable_inspect()->add_ranks(rank);
      ranks.insert(rank);
    }
    if (message.inspect().ranks_size() > 0) {
      roster.Send(participant.session, std::move(message));
    }
  }
  return ranks;
}

}  // namespace dslaunch
