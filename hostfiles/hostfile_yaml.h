// The hostfile's YAML form, which says more of a node than a line can:
//   hosts:
//     - name: node1             # in messages and for --include; default: the address
//       address: 10.0.0.1       # name, alias in ssh_config, or IP address; default: the name
//       port: 2222              # of its sshd
//       user: alice
//       slots: 8
//       labels: {rack: a7}      # shown with the node
//       env: {NCCL_SOCKET_IFNAME: eth1}  # of its ranks; `environment` is the same
//       spare: true
// The top level may be that list itself. The edge to yaml-cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// By the file's name (.yaml, .yml), or else by how its first line that says something begins: with
// `hosts:`, `-`, `---`, `{` or `%`, as no line of the text form can.
bool IsYamlHostfile(std::string_view text, const std::string& path);

// As ParseHostfile. Bounded in depth and in size, aliases included.
Result<std::vector<Host>> ParseYamlHostfile(std::string_view text, const std::string& path);

}  // namespace dslaunch
