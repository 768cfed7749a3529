#include "trainer/data/labeled_images.h"

#include <algorithm>

#include "trainer/base/train_error.h"

namespace dslaunch {

void CheckLabels(const std::string& file, std::span<const uint8_t> labels, int64_t num_classes) {
  const auto bad = std::find_if(labels.begin(), labels.end(),
                                [&](uint8_t label) { return label >= num_classes; });
  if (bad == labels.end()) return;
  throw TrainError(ExitCode::kBadInput, file + ": label " + std::to_string(*bad) + " of sample " +
                                            std::to_string(bad - labels.begin()) +
                                            " is not below model.num_classes, " +
                                            std::to_string(num_classes));
}

}  // namespace dslaunch
