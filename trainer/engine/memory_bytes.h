// What an engine holds, as reports and profiles have it.
#pragma once

#include <cstdint>

#include "dslaunch/engine.h"
#include "trainer/base/memory_bytes.h"

namespace dslaunch {

inline MemoryBytes ToBytes(const MemoryUse& use, int64_t peak_rss) {
  return {use.parameters, use.gradients,   use.buckets, use.optimizer,
          use.buffers,    use.activations, peak_rss};
}

}  // namespace dslaunch
