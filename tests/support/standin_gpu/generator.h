// Random numbers of the stand-in device. A kernel draws from a CPU generator whose seed is made of
// the generator's seed and of how much was drawn before, as CUDA's Philox has a seed and an offset.
#pragma once

#include <ATen/core/Generator.h>

namespace dslaunch::standin {

// Of the current device where `device` is negative.
const at::Generator& DefaultGenerator(c10::DeviceIndex device);
at::Generator NewGenerator(c10::DeviceIndex device);
// For one operation. `given`: the caller's generator, or null for the default one of `device`.
uint64_t DrawSeed(c10::GeneratorImpl* given, c10::DeviceIndex device);

}  // namespace dslaunch::standin
