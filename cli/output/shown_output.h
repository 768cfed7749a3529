// Selects the output of ranks that is shown on the terminal. The log files always contain all
// output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/request/launch_options.h"
#include "proto/agent.pb.h"

namespace dslaunch {

struct ShownOutput {
  ShownRanks shown_ranks;
  // Restricts `shown_ranks` to a choice of local ranks; nullopt for all.
  std::optional<std::vector<int>> local_ranks;
  RankStreams log_only;  // streams that go to log files only, although their rank is shown

  // Returns the maximum number of shown ranks for `world_size` ranks on `nodes` nodes with up to
  // `slots` ranks each.
  size_t CountRanks(size_t world_size, size_t nodes, size_t slots) const;

  // Returns a text for the start line that names the shown ranks and how to see all ranks. Returns
  // an empty string if all ranks are shown or the user chose the ranks.
  std::string Hint(size_t world_size) const;

  // Returns the choice in the form sent to the nodes, which send only this output.
  pb::RankChoice ToProto() const;
};

}  // namespace dslaunch
