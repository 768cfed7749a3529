// An optimizer's update in pieces: gradients are converted, or leave their device, a piece at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dslaunch {

struct UpdatePiece {
  size_t begin = 0, end = 0;  // of the optimizer's parts
};

// Runs of consecutive parts, which have `elements`, of at most `max_elements` together; a larger
// part is a piece of its own. At least one piece, which is empty where there are no parts. Pure.
std::vector<UpdatePiece> CutUpdate(const std::vector<int64_t>& elements, int64_t max_elements);

}  // namespace dslaunch
