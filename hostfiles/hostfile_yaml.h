// Parses the hostfile's YAML format, which can describe a node in more detail:
//   hosts:
//     - name: node1             # in messages and for --include; default: the address
//       address: 10.0.0.1       # name, alias in ssh_config, or IP address; default: the name
//       port: 2222              # of its sshd
//       user: alice
//       slots: 8
//       labels: {rack: a7}      # shown with the node
//       env: {NCCL_SOCKET_IFNAME: eth1}  # for its ranks; `environment` is a synonym
//       spare: true
// The top level may be the list itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// Returns whether a file has the YAML format. Decides by its name (.yaml, .yml), otherwise by its
// first line that is neither empty nor a comment: in YAML, that line begins with `hosts:`, `-`,
// `---`, `{` or `%`, unlike any line of the text format.
bool IsYamlHostfile(std::string_view text, const std::string& path);

// Parses a hostfile in the YAML format, with the errors of ParseHostfile(). Limits nesting and size
// after aliases are expanded.
Result<std::vector<Host>> ParseYamlHostfile(std::string_view text, const std::string& path);

}  // namespace dslaunch
