// Gathers the parts of a tensor from the ranks of a group, and sends each part only once to each
// other host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/deadline.h"
#include "trainer/comm/links/host_groups.h"
#include "trainer/comm/links/link_engine.h"

namespace dslaunch {

// Begins to fill the other ranks' parts of `data`, which has `part_bytes` bytes for each rank, and
// returns. A part is sent to one rank of each other host, which forwards the part to the other
// ranks of its host as soon as it has arrived. Gathers are matched by `tag` (below 2^32) and, with
// the same tag, by order; gathers of different tags may be begun in any order on each rank, and do
// not wait for collectives.
//
// `done` is called once, on the engine's thread: with null when all parts have arrived and were
// sent, or with the first failure. After a failure pending messages may still access `data`. `done`
// is destroyed only after they have ended, so it may own the memory. Thread-safe.
void BeginGather(LinkEngine& engine, const HostGroups& hosts, std::byte* data, size_t part_bytes,
                 uint64_t tag, Deadline deadline, LinkEngine::Done done);

}  // namespace dslaunch
