// Checks that all ranks resume from the same checkpoint. They may see different checkpoints if the
// folder is not shared. Performs no I/O.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

// A rank's decision on how to start, as numbers that a collective can exchange.
struct SeenCheckpoint {
  // Step of the checkpoint; -1 if the rank would start at step 1, -2 if it refuses to start.
  double step = 0;
  double identity = 0;  // checksum of the checkpoint's manifest; 0 without a checkpoint
  bool operator==(const SeenCheckpoint&) const = default;
};

SeenCheckpoint Seen(const ResumeDecision& decision);

// Returns "" if the entries of `seen`, one for each rank, are equal. Otherwise returns one sentence
// that names the ranks, the checkpoint of each rank, and the folder.
std::string Disagreement(const std::string& folder, const std::vector<SeenCheckpoint>& seen);

}  // namespace dslaunch
