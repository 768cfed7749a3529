// Settings of torchvision's resnet18. Images of at most 64 pixels get the usual stem for small
// ones: a 3 x 3 convolution without striding, and no pooling.
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
