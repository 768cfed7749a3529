// Determines how much memory tensors may use.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/device/accelerator.h"

namespace dslaunch {

// Returns the number of bytes that tensors on the device may use; nullopt if unknown. For a CPU,
// this is the memory that the system and this process's cgroup have available now. For a GPU, it is
// the whole memory.
std::optional<int64_t> MemoryForTensors(const RankDevice& device);

}  // namespace dslaunch
