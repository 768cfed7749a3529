// Models of every family.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dslaunch/model.h"
#include "trainer/config/model_family.h"

namespace dslaunch {

// Makes a model with the settings `config` for samples of `input_shape` (Dataset::input_shape).
// Draws initial weights from the default generator; modules are registered in the order that draws
// the same weights as the same model in Python under the same torch.manual_seed. Throws kBadInput
// for samples that the model cannot take.
std::shared_ptr<Model> MakeModel(const ModelConfig& config,
                                 const std::vector<int64_t>& input_shape);

}  // namespace dslaunch
