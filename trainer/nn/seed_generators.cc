#include "trainer/nn/seed_generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

namespace dslaunch {

std::vector<at::Generator> DefaultGenerators(c10::Device device) {
  std::vector<at::Generator> generators = {at::detail::getDefaultCPUGenerator()};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  return generators;
}

void SeedGenerators(c10::Device device, uint64_t seed) {
  for (at::Generator& generator : DefaultGenerators(device)) {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

}  // namespace dslaunch
