// Gathers the parts of a tensor from the ranks of a group, sending each part to another host once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/deadline.h"
#include "trainer/comm/links/host_groups.h"
#include "trainer/comm/links/link_engine.h"

namespace dslaunch {

// Fills the other ranks' parts of `data`, which has `part_bytes` for each rank. A part is sent to
// one rank of each other host, which forwards it to the rest as soon as it has arrived. Gathers are
// matched by `tag` (below 2^32) and, with the same tag, by order; gathers of different tags may
// be begun in any order on each rank, and do not wait for collectives.
//
// Begins and returns. `done` is called once, on the engine's thread: with null when all parts have
// arrived and were sent, or with the first failure; in that case pending messages may still access
// `data`. `done` itself is kept until they have ended, so it may own the memory. Any thread.
void BeginGather(LinkEngine& engine, const HostGroups& hosts, std::byte* data, size_t part_bytes,
                 uint64_t tag, Deadline deadline, LinkEngine::Done done);

}  // namespace dslaunch
