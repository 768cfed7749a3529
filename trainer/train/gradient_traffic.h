// Estimates the memory of a model's passes together with the gradients that are being exchanged.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dslaunch {

// The memory of a backward pass at the moment at which a parameter's gradient is complete.
struct GradientArrival {
  size_t parameter = 0;  // index among the trained parameters, in the model's order
  // Maximum bytes since the previous gradient was complete or, for the first, since the forward
  // pass began.
  int64_t peak = 0;
  int64_t live = 0;  // live bytes when the gradient is complete, including the gradient
  int64_t left = 0;  // live bytes when the gradient is complete, without the gradient
};

// A group of gradients that are sent together once all of them are complete.
struct GradientUnit {
  std::vector<size_t> parameters = {};  // indices of the trained parameters in the model's order
  int64_t message = 0;  // bytes from the first gradient until the message has been received
  int64_t others = 0;   // additional bytes from sending until the message has been received
};

// Returns the maximum bytes that `units` hold at a time if the order of the gradients is not known.
// Assumes that all gradients of a unit are complete before the next unit begins, except for one
// gradient of the next unit. With `overlap`, up to kMostUnderWay units are exchanged at a time, and
// the oldest message is received before another is sent.
int64_t MostOnTheirWay(const std::vector<GradientUnit>& units, bool overlap);

// Returns the maximum bytes of `units` and passes together if gradients are completed in the order
// of `arrivals`. Units are sent in the order of `units`. `at_end` is the maximum bytes of the
// passes after the last gradient.
int64_t MostWithPasses(const std::vector<GradientUnit>& units, bool overlap,
                       const std::vector<GradientArrival>& arrivals, int64_t at_end);

}  // namespace dslaunch
