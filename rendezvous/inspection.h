// Sends requests to inspect ranks to the nodes that run them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>

#include "proto/rendezvous.pb.h"
#include "rendezvous/roster.h"

namespace dslaunch {

// Sends `inspect` to the nodes of the attempt that are not lost, with the ranks that each node must
// inspect. Selects ranks for which `is_wanted` returns true, at most `most` ranks of all nodes
// together. Returns the selected ranks.
std::set<uint32_t> SendInspect(
    Roster& roster, const pb::Inspect& inspect, size_t most,
    const std::function<bool(const Participant& participant, uint32_t rank)>& is_wanted);

}  // namespace dslaunch
