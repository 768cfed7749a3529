// A model out of a user's shared library (dslaunch/plugin.h).
#pragma once

#include <memory>
#include <vector>

#include "dslaunch/model.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Loads the library, which then stays loaded, and makes its model for samples of `input_shape`.
// Throws TrainError kBadInput, naming the library: it cannot be loaded, is no plugin, was built for
// another dslaunch or LibTorch, or makes no model of these parameters.
std::shared_ptr<Model> LoadPluginModel(const PluginConfig& config,
                                       const std::vector<int64_t>& input_shape);

}  // namespace dslaunch
