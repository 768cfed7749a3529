// Checks whether this process may open as many descriptors as a rendezvous needs.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"
#include "base/os/subprocess.h"

namespace dslaunch {

// Fails with kUnavailable, naming the node and the limit, if `files` and the descriptors for
// connections of `num_nodes` nodes together exceed the limit. Without this check, the nodes'
// connections would fail later, as if a firewall blocked them. Pure.
Result<void> CheckOpenFiles(const std::string& node_name, size_t num_nodes, const OpenFiles& files);

}  // namespace dslaunch
