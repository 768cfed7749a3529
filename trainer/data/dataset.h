// Opens data sets, whose samples are tensors that are fetched by index.
#pragma once

#include <memory>
#include <string>

#include "dslaunch/dataset.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

struct DataSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;  // null if the recipe has no data for evaluation
  // Messages about data that is not used; empty if all data is used. `test_notice` covers only the
  // files of `test`.
  std::string notice = {};
  std::string test_notice = {};
};

// Opens a recipe's data for a model with these needs. Checks that labels of images and tables are
// below needs.classes. A token that is not below needs.vocabulary is reported by the Fetch that
// reads it. Image files of a folder are decoded by the Fetch that reads them. Both OpenData and
// Fetch throw TrainError: kBadInput, naming the file, for invalid data, or kIo if a file cannot be
// read.
DataSplits OpenData(const DataConfig& data, const DataNeeds& needs);

}  // namespace dslaunch
