// Opens data sets, whose samples are tensors fetched by index.
#pragma once

#include <memory>
#include <string>

#include "dslaunch/dataset.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

struct DataSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;  // null if there is nothing to evaluate on
  std::string notice = {};        // message about data that is left out; empty if all is used
};

// Opens the data of a recipe for a model with these needs. Checks that labels of images and tables
// are below needs.classes. A token that is not below needs.vocabulary is reported by the Fetch that
// reads it. Image files of a folder are decoded by the Fetch that reads them. Both this function
// and Fetch throw TrainError: kBadInput, naming the file, or kIo if it cannot be read.
DataSplits OpenData(const DataConfig& data, const DataNeeds& needs);

}  // namespace dslaunch
