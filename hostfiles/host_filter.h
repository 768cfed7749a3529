// Implements DeepSpeed's --include and --exclude, which select the nodes and slots that a job uses.
//   FILTER = NODE@NODE...    NODE = NAME or NAME:SLOT,SLOT...
//   --include node1@node2:0,2   all slots of node1, slots 0 and 2 of node2
//   --exclude node2:0           all but slot 0 of node2
// NAME is a node as written in the hostfile, or its host without user and port if only one node has
// that host; an IPv6 address is in brackets. Ranges of slots are not supported. The slots of a node
// that is named twice are combined.
#pragma once

#include <string_view>
#include <vector>

#include "base/error.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

enum class FilterKind { kInclude, kExclude };

// Returns the selected hosts in their order. If a filter names slots of a host, sets its `devices`
// and `slots` to match. An empty filter selects all hosts. Fails with kUsage if the filter is wrong
// or selects no host; the message begins with the option, and contains the token and a hint.
// `source` is the hostfile's name for messages. Pure; takes time linear in hosts and filter.
Result<std::vector<Host>> FilterHosts(const std::vector<Host>& hosts, FilterKind kind,
                                      std::string_view filter, std::string_view source);

}  // namespace dslaunch
