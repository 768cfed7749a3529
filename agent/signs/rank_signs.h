// Reads the signs of life of a node's ranks from /proc and from the kernel's table of TCP sockets.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/core/rank_stillness.h"

namespace dslaunch {

struct RankProcess {
  pid_t pid = 0;         // process ID; 0 if the rank does not run
  std::string folder;    // folder with the rank's stdout.log and stderr.log
  int ras_port = 28028;  // port on which NCCL's RAS listens
};

// Returns the signs of life of each rank, read from its process and that process's descendants.
// Returns nullopt for a rank that does not run or whose processes cannot be read, and for all ranks
// if the kernel does not list sockets. Does not read digests.
// `store_port` is MASTER_PORT. Bytes on connections to that port and to NCCL's RAS are counted
// separately. Takes about 20 us for each process of the machine and for each descriptor of the
// ranks.
std::vector<std::optional<RankSigns>> ReadRankSigns(const std::vector<RankProcess>& ranks,
                                                    int store_port);

}  // namespace dslaunch
