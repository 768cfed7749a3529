// Data sets as tensors, fetched by index.
#pragma once

#include <memory>
#include <string>

#include "dslaunch/dataset.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

struct DataSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;  // null if there is nothing to evaluate on
  std::string notice = {};  // line for people about data that is left out; empty if there is none
};

// Opens the data of a recipe for a model with these needs. Labels of images and tables are checked
// to be below needs.classes; a token that is not below needs.vocabulary is reported by the Fetch
// that reads it. An image of a folder of images is decoded by the Fetch that reads it. Throws
// TrainError kBadInput, naming the file, or kIo, as Fetch does.
DataSplits OpenData(const DataConfig& data, const DataNeeds& needs);

}  // namespace dslaunch
