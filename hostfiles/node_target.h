// A node's name and the way to it.
#pragma once

#include <cstddef>
#include <string>

namespace dslaunch {

struct NodeTarget {
  std::string name;      // as the user wrote it; in every message
  std::string host;      // host name, alias in ssh_config, or address; no brackets
  int port = 0;          // 0: not given; ssh_config's or 22
  std::string user;      // empty: not given; ssh_config's or the caller's
  size_t index = 0;      // among the nodes of the job, in hostfile order, from 0
  bool is_here = false;  // it is this machine, which needs no SSH
  int component = -1;    // of a heterogeneous job of Slurm's; -1: of another job
};

}  // namespace dslaunch
