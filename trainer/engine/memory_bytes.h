// What an engine holds, as reports and profiles have it.
#pragma once

#include <cstdint>

#include "dslaunch/engine.h"
#include "trainer/base/memory_bytes.h"

namespace dslaunch {

inline MemoryBytes ToBytes(const MemoryUse& use, int64_t peak_rss) {
  return {.parameters = use.parameters,
          .gradients = use.gradients,
          .buckets = use.buckets,
          .optimizer = use.optimizer,
          .buffers = use.buffers,
          .activations = use.activations,
          .peak_rss = peak_rss};
}

}  // namespace dslaunch
