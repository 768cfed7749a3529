// Whether this process may open as many descriptors as a rendezvous takes.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"
#include "base/os/subprocess.h"

namespace dslaunch {

// kUnavailable, naming the node and the limit, where `files` and the descriptors for the
// connections of `num_nodes` nodes exceed the limit. Without this the nodes' connections would
// fail, which looks like a firewall's doing. Pure.
Result<void> CheckOpenFiles(const std::string& node_name, size_t num_nodes, const OpenFiles& files);

}  // namespace dslaunch
