// A data set out of a user's shared library (dslaunch/plugin.h).
#pragma once

#include "trainer/config/recipe.h"
#include "trainer/data/dataset.h"

namespace dslaunch {

// Loads the library, which then stays loaded, and makes its data set, once for each split. What it
// gives is checked as it comes: shapes and types that do not change, as many samples as asked for,
// and labels and tokens that a built-in model can take. Throws TrainError kBadInput, naming library
// and data set, as Fetch of the results does.
DataSplits OpenPluginData(const DataConfig& data, const DataNeeds& needs);

}  // namespace dslaunch
