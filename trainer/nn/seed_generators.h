#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace dslaunch {

// Returns the default generators that a computation on `device` may use: the CPU's, and the
// device's if it is not the CPU.
std::vector<at::Generator> DefaultGenerators(c10::Device device);

// Seeds DefaultGenerators(device) without waiting for a GPU.
void SeedGenerators(c10::Device device, uint64_t seed);

}  // namespace dslaunch
