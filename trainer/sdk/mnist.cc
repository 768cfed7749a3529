#include "dslaunch/mnist.h"

#include <numeric>
#include <vector>

#include "trainer/data/dataset.h"

namespace dslaunch {

LabeledTensors ReadMnist(const std::string& folder, bool train) {
  DataConfig config;
  config.type = DataConfig::Type::kIdx;
  config.path = folder;
  // Labels are bytes, so with 256 classes any label is accepted.
  const DataSplits splits = OpenData(config, DataNeeds{.classes = 256});
  const Dataset& wanted = train ? *splits.train : *splits.test;
  std::vector<int64_t> all(static_cast<size_t>(wanted.size()));
  std::iota(all.begin(), all.end(), 0);
  Batch samples = wanted.Fetch(all);
  return {samples.inputs, samples.targets};
}

}  // namespace dslaunch
