// Defines the settings of a multilayer perceptron with one hidden layer.
#pragma once

#include "trainer/config/model_family.h"

namespace dslaunch {

const ModelFamily& MlpFamily();

struct MlpConfig {
  static const ModelFamily& Family() { return MlpFamily(); }
  DataNeeds Needs() const { return {.classes = num_classes}; }

  int64_t hidden_size = 128;
  int64_t num_classes = 10;
};

}  // namespace dslaunch
