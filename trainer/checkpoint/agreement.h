// Whether all ranks go on from the same checkpoint. They do not where the folder is not shared.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

// One rank's decision as numbers, which a collective can carry.
struct SeenCheckpoint {
  double step = 0;      // -1: would start afresh; -2: refuses
  double identity = 0;  // of the checkpoint, 0 for none
  bool operator==(const SeenCheckpoint&) const = default;
};

SeenCheckpoint Seen(const ResumeDecision& decision);

// `seen` has an entry for each rank. Empty where they agree, else one sentence that names ranks,
// what they see and the folder.
std::string Disagreement(const std::string& folder, const std::vector<SeenCheckpoint>& seen);

}  // namespace dslaunch
