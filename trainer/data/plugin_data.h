// Opens a data set of a user's shared library (dslaunch/plugin.h).
#pragma once

#include "trainer/config/recipe.h"
#include "trainer/data/dataset.h"

namespace dslaunch {

// Loads the library, which is never unloaded, and makes its data set once for each split. When
// batches are fetched, they are checked for constant shapes and types, the number of samples, and
// labels and tokens that fit `needs`. Both this function and Fetch of the results throw TrainError
// kBadInput, naming library and data set.
DataSplits OpenPluginData(const DataConfig& data, const DataNeeds& needs);

}  // namespace dslaunch
