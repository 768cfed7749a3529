// A data set from a user's shared library (dslaunch/plugin.h).
#pragma once

#include "trainer/config/recipe.h"
#include "trainer/data/dataset.h"

namespace dslaunch {

// Loads the library, which then stays loaded, and makes its data set, once for each split. Batches
// are checked when they are fetched: constant shapes and types, the number of samples, and labels
// and tokens that fit `needs`. Throws TrainError kBadInput, naming library and data set, as does
// Fetch of the results.
DataSplits OpenPluginData(const DataConfig& data, const DataNeeds& needs);

}  // namespace dslaunch
