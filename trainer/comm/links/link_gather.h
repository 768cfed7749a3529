// Parts of a tensor that the ranks of a group give to each other, each to another host once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/deadline.h"
#include "trainer/comm/links/host_groups.h"
#include "trainer/comm/links/link_engine.h"

namespace dslaunch {

// `data` has a part of `part_bytes` for each rank, of which this rank's is there: the others are
// filled. A part goes to one rank of each other host, which forwards it to the rest as soon as it
// has come. Gathers are matched by `tag` (below 2^32) and, of one tag, by order; those of different
// tags may be begun in any order on each rank, and do not wait for collectives.
//
// Begins and returns. `done` is called once, on the engine's thread: with null when all is there
// and has gone, or with the first failure; some of `data` may still be touched then. It is kept
// until nothing is, so what it holds may be the memory. Any thread.
void BeginGather(LinkEngine& engine, const HostGroups& hosts, std::byte* data, size_t part_bytes,
                 uint64_t tag, Deadline deadline, LinkEngine::Done done);

}  // namespace dslaunch
