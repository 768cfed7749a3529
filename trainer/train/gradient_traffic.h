// How much memory the passes of a model and the gradients on their way take together. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dslaunch {

// What a backward pass holds around the moment at which a parameter's gradient is there.
struct GradientArrival {
  size_t parameter = 0;  // of those that are trained, in the model's order
  int64_t peak = 0;  // bytes, the most since the arrival before, or since the forward pass began
  int64_t live = 0;  // at that moment, the gradient included
  int64_t left = 0;  // without it
};

// Gradients that travel together, as soon as all of them are there.
struct GradientUnit {
  std::vector<size_t> parameters = {};  // as in GradientArrival
  int64_t message = 0;                  // bytes that it needs from the first gradient on
  int64_t others = 0;  // and besides from when it is sent on, both until it is awaited
};

// The most bytes of units at a time where it is not known how gradients come: unit by unit, but for
// one of the next. With `overlap`, kMostUnderWay of them are on their way, and the oldest is
// awaited before another is sent.
int64_t MostOnTheirWay(const std::vector<GradientUnit>& units, bool overlap);

// The most bytes of units and passes together, by the order in which gradients come. Units are sent
// in their order. `at_end`: the most that the passes hold after the last arrival.
int64_t MostWithPasses(const std::vector<GradientUnit>& units, bool overlap,
                       const std::vector<GradientArrival>& arrivals, int64_t at_end);

}  // namespace dslaunch
