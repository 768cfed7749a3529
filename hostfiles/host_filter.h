// DeepSpeed's --include and --exclude: which nodes and which of their slots a job takes.
//   FILTER = NODE@NODE...    NODE = NAME or NAME:SLOT,SLOT...
//   --include node1@node2:0,2   all slots of node1, slots 0 and 2 of node2
//   --exclude node2:0           all but slot 0 of node2
// NAME is a node as the hostfile writes it, or its host without user and port where only one node
// has it; an IPv6 address stands in brackets. There are no ranges. A node named twice is named once
// with all slots given for it.
#pragma once

#include <string_view>
#include <vector>

#include "base/error.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

enum class FilterKind { kInclude, kExclude };

// The chosen ones of `hosts`, in their order; those of which slots were named with `devices`, and
// `slots` to match. Pure, linear in hosts and filter. Errors are kUsage, begin with the option, and
// name the token and a hint; `source`, the hostfile, only appears in them. That nothing is
// left is an error. An empty filter takes all.
Result<std::vector<Host>> FilterHosts(const std::vector<Host>& hosts, FilterKind kind,
                                      std::string_view filter, std::string_view source);

}  // namespace dslaunch
