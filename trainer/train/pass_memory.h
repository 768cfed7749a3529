// Computes the memory and the floating-point operations of a model's passes from shapes alone.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/config/recipe.h"
#include "trainer/data/dataset.h"
#include "trainer/train/memory_plan.h"

namespace dslaunch {

// The functions below construct the model without allocating memory and run it without computing
// (ShapePass), so they work for models of any size. `sample` is one sample, [1, ...]; a micro-batch
// has as many such samples as the engine configuration sets. The functions throw TrainError
// kBadInput, naming the operation, if the passes depend on values, which can happen in a user's own
// model.

// Returns the memory of a rank that has the whole model, for one micro-batch, with the
// configuration's precision, autocast and recomputation. Memory within LibTorch's kernels is not
// included.
PassMemory MeasurePass(const Recipe& recipe, const Batch& sample);

// Layers [begin, end) of each part of a model. Part p is chunk (p / stages) of stage (p % stages).
using LayerParts = std::vector<std::pair<size_t, size_t>>;

// Returns the memory of each pipeline stage, for as many micro-batches as the schedule keeps in
// flight on that stage.
std::vector<PassMemory> MeasureStages(const Recipe& recipe, const LayerParts& parts,
                                      const Batch& sample);

// Returns the floating-point operations of each layer's forward pass (profile/flop_formula.h). An
// embedding counts 0, because it only looks values up.
std::vector<double> LayerFlops(const Recipe& recipe, const at::Tensor& inputs);

}  // namespace dslaunch
