// Selects the output of ranks that is shown on the terminal. The log files contain all output.
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
      local_ranks;       // restricts `shown_ranks` to these local ranks; nullopt for all
  RankStreams log_only;  // streams of shown ranks that are not shown

  // Returns the maximum number of shown ranks if `world_size` ranks run on `nodes` nodes with up to
  // `slots` each.
  size_t CountRanks(size_t world_size, size_t nodes, size_t slots) const;

  // Returns a text for the start line that names the shown ranks and how to see all. Empty if all
  // are shown or the user chose them.
  std::string Hint(size_t world_size) const;

  // Returns the choice as sent to the nodes, which send only this output.
  pb::RankChoice ToProto() const;
};

}  // namespace dslaunch
