// The memory that tensors may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trainer/device/accelerator.h"

namespace dslaunch {

// Returns the bytes that tensors on the device may take: of a CPU what the system has available
// now, of a GPU its whole memory. nullopt if unknown.
std::optional<int64_t> MemoryForTensors(const RankDevice& device);

// Returns MemAvailable of /proc/meminfo, whose content is `text`, in bytes. Pure.
std::optional<int64_t> AvailableBytes(std::string_view text);

}  // namespace dslaunch
