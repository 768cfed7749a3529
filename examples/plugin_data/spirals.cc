// A data set and a metric of one's own for `dslaunch train`: points on spirals that wind around
// each other, one for each class, and in how many of a model's answers the class is among the first
// k.
#include <ATen/ops/empty.h>
#include <ATen/ops/topk.h>
#include <dslaunch/plugin.h>

#include <cmath>
#include <stdexcept>

class Spirals : public dslaunch::Dataset {
 public:
  explicit Spirals(const dslaunch::DatasetInput& input)
      : size_(static_cast<int64_t>(input.Number(input.train ? "train_samples" : "test_samples"))),
        classes_(static_cast<int64_t>(input.Number("classes"))),
        seed_(input.train ? 1 : 2) {
    if (size_ < 0 || classes_ < 1) throw std::invalid_argument("classes must be at least 1");
  }

  int64_t size() const override { return size_; }

  dslaunch::Batch Fetch(std::span<const int64_t> indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    dslaunch::Batch batch{at::empty({count, 2}, at::kFloat), at::empty({count}, at::kLong)};
    auto* point = batch.inputs.mutable_data_ptr<float>();
    auto* target = batch.targets.mutable_data_ptr<int64_t>();
    for (const int64_t index : indices) {
      const int64_t spiral = index % classes_;
      // The same sample for the same index, on every rank.
      const double along = std::fmod(0.618033988749895 * static_cast<double>(index * 7 + seed_), 1);
      const double angle =
          6.283185307179586 * (static_cast<double>(spiral) / static_cast<double>(classes_) + along);
      *point++ = static_cast<float>(along * std::cos(angle));
      *point++ = static_cast<float>(along * std::sin(angle));
      *target++ = spiral;
    }
    return batch;
  }

 private:
  int64_t size_, classes_, seed_;
};

class TopK : public dslaunch::Metric {
 public:
  explicit TopK(const dslaunch::MetricInput& input) : k_(static_cast<int64_t>(input.Number("k"))) {}

  // How many are right, and how many there are.
  std::vector<double> Sums(const at::Tensor& output, const at::Tensor& targets) const override {
    const at::Tensor answers = std::get<1>(at::topk(output, k_, 1));
    const auto right = answers.eq(targets.unsqueeze(1)).sum().item<double>();
    return {right, static_cast<double>(targets.size(0))};
  }

  double Value(const std::vector<double>& sums) const override { return sums[0] / sums[1]; }

 private:
  int64_t k_;
};

DSLAUNCH_DATASET(spirals, Spirals)
DSLAUNCH_METRIC(top_k, TopK)
