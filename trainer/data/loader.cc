#include "trainer/data/loader.h"

#include <algorithm>

namespace dslaunch {

class BatchLoader::Impl {
 public:
  Impl(const Dataset& dataset, const Options& options)
      : dataset_(dataset),
        options_(options),
        sampler_(options.sampler),
        next_(options.first_batch) {}

  Batch Next() {
    const int64_t position = next_ % options_.batches_per_epoch;
    if (position == 0 || indices_.empty()) {
      sampler_.SetEpoch(next_ / options_.batches_per_epoch);
      indices_ = sampler_.Indices();
    }
    ++next_;
    const auto begin = static_cast<size_t>(position * options_.batch_size);
    return dataset_.Fetch(std::span(indices_).subspan(
        begin, std::min(static_cast<size_t>(options_.batch_size), indices_.size() - begin)));
  }

 private:
  const Dataset& dataset_;
  Options options_;
  DistributedSampler sampler_;
  int64_t next_;                  // micro-batches since the first epoch began
  std::vector<int64_t> indices_;  // of the epoch that has begun
};

BatchLoader::BatchLoader(const Dataset& dataset, const Options& options)
    : impl_(std::make_unique<Impl>(dataset, options)) {}
BatchLoader::~BatchLoader() = default;
Batch BatchLoader::Next() { return impl_->Next(); }
double BatchLoader::waited_s() const { return 0; }

}  // namespace dslaunch
