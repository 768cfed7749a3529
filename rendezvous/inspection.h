// Asks the nodes to look at their ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>

#include "proto/rendezvous.pb.h"
#include "rendezvous/roster.h"

namespace dslaunch {

// Sends `inspect`, with its ranks, to each node of the attempt that is not lost and has ranks for
// which `is_wanted` is true, up to `most` ranks of all nodes. Returns these ranks.
std::set<uint32_t> SendInspect(
    Roster& roster, const pb::Inspect& inspect, size_t most,
    const std::function<bool(const Participant& participant, uint32_t rank)>& is_wanted);

}  // namespace dslaunch
