// Data sets as tensors, fetched by index.
#pragma once

#include <memory>

#include "dslaunch/dataset.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

struct DataSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;  // null: there is nothing to evaluate on
};

// Opens what a recipe names. Every label of images and tables is checked to be below the model's
// number of classes; a token that is not below its vocabulary is found by the Fetch that reads it.
// An image of a folder of images is decoded by the Fetch that reads it. Throws TrainError
// kBadInput, naming the file, or kIo, as Fetch does.
DataSplits OpenData(const DataConfig& data, const ModelConfig& model);

}  // namespace dslaunch
