// What of the ranks' output appears on the terminal; the log files have all of it anyway.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/request/launch_options.h"
#include "proto/agent.pb.h"

namespace dslaunch {

struct ShownOutput {
  ShownRanks shown_ranks;
  std::optional<std::vector<int>>
      local_ranks;       // of those that `shown_ranks` shows; nullopt: all of those
  RankStreams log_only;  // of those the streams that are not shown

  // How many ranks that are, at most, when `world_size` ranks run on `nodes` nodes with up to
  // `slots` each.
  size_t CountRanks(size_t world_size, size_t nodes, size_t slots) const;

  // For the start line of a job whose ranks are not all shown: which are, and how to see all. Empty
  // for one that shows all, or what the user chose.
  std::string Hint(size_t world_size) const;

  // The same for the nodes, which send nothing else.
  pb::RankChoice ToProto() const;
};

}  // namespace dslaunch
