// What passes of a model hold in memory and compute, found from shapes alone.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/config/recipe.h"
#include "trainer/data/dataset.h"
#include "trainer/train/memory_plan.h"

namespace dslaunch {

// The next ones construct the model without memory and run it without computing (ShapePass), so
// any size will do. `sample` is one sample, [1, ...]; micro-batches are of as many such as the
// engine configuration says. They throw TrainError kBadInput where the passes depend on values,
// naming the operation; a model of the user's own may.

// Of a rank that has the whole model, at one micro-batch, in 16 bit, under autocast and with
// recomputed parts as the configuration has it. Memory within LibTorch's kernels is not in it.
PassMemory MeasurePass(const Recipe& recipe, const Batch& sample);

// Layers [begin, end) of each part of a model, part p being chunk p / stages of stage p % stages.
using LayerParts = std::vector<std::pair<size_t, size_t>>;

// Of each stage of a pipeline, with as many micro-batches as its schedule has under way there.
std::vector<PassMemory> MeasureStages(const Recipe& recipe, const LayerParts& parts,
                                      const Batch& sample);

// Floating point operations of each layer's forward pass (profile/flop_formula.h): of an embedding
// 0, which is a look-up.
std::vector<double> LayerFlops(const Recipe& recipe, const at::Tensor& inputs);

}  // namespace dslaunch
