// Defines the settings of a convolutional model with two convolutions and two linear layers.
#pragma once

#include "trainer/config/model_family.h"

namespace dslaunch {

const ModelFamily& CnnFamily();

struct CnnConfig {
  static const ModelFamily& Family() { return CnnFamily(); }
  DataNeeds Needs() const { return {.classes = num_classes}; }

  int64_t hidden_size = 128;  // number of outputs of the first linear layer
  int64_t num_classes = 10;
};

}  // namespace dslaunch
