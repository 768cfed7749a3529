#include "trainer/nn/tensor_parallel/region_seed.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "trainer/base/seed.h"
#include "trainer/nn/seed_generators.h"

namespace dslaunch {

RegionSeed::RegionSeed(const TensorParallel& tensor, c10::Device device, bool draws) {
  if (!tensor.divides() || !draws) return;
  uint64_t drawn = 0;
  {
    at::Generator host = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(host.mutex());
    drawn = at::check_generator<at::CPUGeneratorImpl>(host)->random64();
  }
  for (at::Generator& generator : DefaultGenerators(device)) {
    const std::lock_guard lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
    generator.set_current_seed(MixSeed({drawn, static_cast<uint64_t>(tensor.part)}));
  }
}

RegionSeed::~RegionSeed() {
  for (auto& [generator, state] : states_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

at::Tensor DropoutOutsideRegions(const at::Tensor& x, double p, bool train,
                                 const TensorParallel& tensor) {
  const RegionSeed seed(tensor, x.device(), tensor.divides_tokens() && train && p > 0);
  return at::dropout(x, p, train);
}

}  // namespace dslaunch
