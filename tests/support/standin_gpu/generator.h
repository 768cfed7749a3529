// Generates the random numbers of the stand-in device. A kernel draws from a CPU generator, whose
// seed consists of the device generator's seed and the amount drawn so far, like the seed and
// offset of CUDA's Philox.
#pragma once

#include <ATen/core/Generator.h>

namespace dslaunch::standin {

// Returns the generator of `device`, or of the current device if `device` is negative.
const at::Generator& DefaultGenerator(c10::DeviceIndex device);
at::Generator NewGenerator(c10::DeviceIndex device);
// Returns the seed for one operation. `given` is the caller's generator, or null for the default
// generator of `device`.
uint64_t DrawSeed(c10::GeneratorImpl* given, c10::DeviceIndex device);

}  // namespace dslaunch::standin
