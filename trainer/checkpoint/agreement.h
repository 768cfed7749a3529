// Whether all ranks resume from the same checkpoint. They do not if the folder is not shared. Pure.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

// The decision of one rank as numbers, which a collective can exchange.
struct SeenCheckpoint {
  double step = 0;      // -1: would start afresh; -2: refuses
  double identity = 0;  // of the checkpoint, 0 for none
  bool operator==(const SeenCheckpoint&) const = default;
};

SeenCheckpoint Seen(const ResumeDecision& decision);

// `seen` has an entry for each rank. Empty if they are equal, else one sentence that names the
// ranks, what they see, and the folder.
std::string Disagreement(const std::string& folder, const std::vector<SeenCheckpoint>& seen);

}  // namespace dslaunch
