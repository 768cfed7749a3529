#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace dslaunch {

// The default generators that a computation on `device` may draw from: the CPU's and its own.
std::vector<at::Generator> DefaultGenerators(c10::Device device);

// Seeds them. A GPU is not waited for.
void SeedGenerators(c10::Device device, uint64_t seed);

}  // namespace dslaunch
