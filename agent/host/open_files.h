// Whether this process may open as many descriptors as a rendezvous takes.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace dslaunch {

// How many descriptors this process has open.
size_t CountOpenFiles();
// How many it may have (RLIMIT_NOFILE, the soft limit).
size_t OpenFileLimit();

// kUnavailable, naming the node and the limit, where `open` descriptors and those for the
// connections of `num_nodes` nodes exceed `limit`. Without this the nodes' connections would fail,
// which looks like a firewall's doing.
Result<void> CheckOpenFiles(const std::string& node_name, size_t num_nodes, size_t open,
                            size_t limit);

}  // namespace dslaunch
