#include "trainer/data/sampler.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace dslaunch {

std::vector<int64_t> DistributedSampler::Indices() const {
  at::Tensor order;
  if (options_.shuffle) {
    at::Generator generator =
        at::make_generator<at::CPUGeneratorImpl>(options_.seed + static_cast<uint64_t>(epoch_));
    order = at::randperm(options_.num_samples, generator, at::kLong);
  } else {
    order = at::arange(options_.num_samples, at::kLong);
  }
  const int64_t* position = order.const_data_ptr<int64_t>();
  std::vector<int64_t> indices(static_cast<size_t>(
      SamplesPerRank(options_.num_samples - read_, options_.world_size, options_.drop_last)));
  for (size_t k = 0; k < indices.size(); ++k) {
    const int64_t at = read_ + options_.rank + static_cast<int64_t>(k) * options_.world_size;
    indices[k] = position[at % options_.num_samples];
  }
  return indices;
}

std::vector<int64_t> EvaluationIndices(int64_t num_samples, int rank, int world_size) {
  std::vector<int64_t> indices;
  for (int64_t i = rank; i < num_samples; i += world_size) indices.push_back(i);
  return indices;
}

}  // namespace dslaunch
