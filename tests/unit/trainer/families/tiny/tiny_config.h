// Declares a minimal family of models for a test: only the parts that every family must have.
#pragma once

#include "trainer/config/model_family.h"

namespace dslaunch {

const ModelFamily& TinyFamily();

struct TinyConfig {
  static const ModelFamily& Family() { return TinyFamily(); }
  DataNeeds Needs() const { return {.classes = num_classes}; }

  int64_t width = 4;
  int64_t num_classes = 2;
};

}  // namespace dslaunch
