#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <string>

#include "dslaunch/horovod_elastic.h"
#include "trainer/base/train_error.h"

namespace dslaunch::horovod::elastic {

ElasticSampler::ElasticSampler(int64_t num_samples, const ElasticSamplerOptions& options)
    : num_samples_(num_samples), options_(options) {
  if (num_samples < 1) {
    throw TrainError(ExitCode::kUsage, "elastic::ElasticSampler: " + std::to_string(num_samples) +
                                           " samples; there must be one at least");
  }
  SetEpoch(0);
}

void ElasticSampler::SetEpoch(int64_t epoch) { Load(epoch, at::zeros({num_samples_}, at::kByte)); }

std::vector<int64_t> ElasticSampler::GetIndices(int64_t batch, int64_t batch_size) const {
  if (batch < 0 || batch_size < 1) {
    throw TrainError(ExitCode::kUsage, "elastic::ElasticSampler: batch " + std::to_string(batch) +
                                           " of " + std::to_string(batch_size) +
                                           " samples; batches are counted from 0");
  }
  const auto end = static_cast<int64_t>(indices_.size());
  const int64_t first = std::min(batch * batch_size, end);
  const int64_t last = std::min(first + batch_size, end);
  return {indices_.begin() + first, indices_.begin() + last};
}

void ElasticSampler::RecordBatch(int64_t batch, int64_t batch_size) {
  RecordIndices(GetIndices(batch, batch_size));
}

void ElasticSampler::RecordIndices(const std::vector<int64_t>& indices) {
  auto* const processed = processed_.mutable_data_ptr<uint8_t>();
  for (const int64_t index : indices) {
    if (index < 0 || index >= num_samples_) {
      throw TrainError(ExitCode::kUsage, "elastic::ElasticSampler: there is no sample " +
                                             std::to_string(index) + "; the last of " +
                                             std::to_string(num_samples_) + " is " +
                                             std::to_string(num_samples_ - 1));
    }
    processed[index] = 1;
  }
}

at::Tensor ElasticSampler::Processed() const { return processed_.clone(); }

void ElasticSampler::Load(int64_t epoch, const at::Tensor& processed) {
  if (processed.scalar_type() != at::kByte || processed.dim() != 1 ||
      processed.numel() != num_samples_) {
    throw TrainError(ExitCode::kBadInput,
                     "elastic::ElasticSampler: what is processed must be uint8 [" +
                         std::to_string(num_samples_) + "], a byte for each sample");
  }
  epoch_ = epoch;
  processed_ = processed.clone(at::MemoryFormat::Contiguous);
  at::Tensor order = at::arange(num_samples_, at::kLong);
  if (options_.shuffle) {
    at::Generator generator =
        at::make_generator<at::CPUGeneratorImpl>(options_.seed + static_cast<uint64_t>(epoch));
    order = at::randperm(num_samples_, generator, at::kLong);
  }
  const at::Tensor left = order.masked_select(processed_.index_select(0, order).eq(0));
  const int64_t* const samples = left.const_data_ptr<int64_t>();
  indices_.resize(static_cast<size_t>((left.numel() + Size() - 1) / Size()));
  int64_t next = Rank();
  for (int64_t& index : indices_) {
    index = samples[next % left.numel()];
    next += Size();
  }
}

}  // namespace dslaunch::horovod::elastic
