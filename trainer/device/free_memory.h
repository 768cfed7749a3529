// The memory that tensors may still take.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/device/accelerator.h"

namespace dslaunch {

// Returns the bytes that tensors on the device may take: of a CPU what the system and this
// process's cgroup have available now, of a GPU its whole memory. nullopt if unknown.
std::optional<int64_t> MemoryForTensors(const RankDevice& device);

}  // namespace dslaunch
