// Defines the settings of torchvision's resnet18. For images whose sides have at most 64 pixels,
// the model has the usual stem for small images: a 3 x 3 convolution without stride and without
// pooling.
#pragma once

#include "trainer/config/model_family.h"

namespace dslaunch {

const ModelFamily& Resnet18Family();

struct Resnet18Config {
  static const ModelFamily& Family() { return Resnet18Family(); }
  DataNeeds Needs() const { return {.classes = num_classes}; }

  int64_t num_classes = 10;
};

}  // namespace dslaunch
