// Reads the signs of life of a node's ranks from /proc and from the kernel's table of TCP sockets.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/core/rank_stillness.h"

namespace dslaunch {

struct RankProcess {
  pid_t pid = 0;         // 0: it does not run
  std::string folder;    // folder of stdout.log and stderr.log
  int ras_port = 28028;  // where NCCL's RAS listens
};

// Returns the signs of each rank's process and its descendants. nullopt for a rank that does not
// run or whose processes cannot be read, and for all if the kernel does not list sockets. Digests
// are not read.
// `store_port`: MASTER_PORT; its connections, and NCCL's for RAS, count apart. Takes
// about 20 us for each process of the machine, and as long for each descriptor of the ranks.
std::vector<std::optional<RankSigns>> ReadRankSigns(const std::vector<RankProcess>& ranks,
                                                    int store_port);

}  // namespace dslaunch
