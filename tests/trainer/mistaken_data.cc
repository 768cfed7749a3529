// Plugin for tests/multiproc/plugin_test.py, tests/hosts/slurm_requeue_test.py and
// staleness_test.py: data sets and metrics that make the mistakes named in their params. Labels are
// the index modulo 4, and the inputs encode the labels.
#include <ATen/ATen.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "dslaunch/plugin.h"

namespace {

int Rank() { return std::atoi(std::getenv("RANK")); }

// Returns whether this rank makes the mistake. Without a rank in the params, all ranks make it.
template <class Input>
bool IsHere(const Input& input) {
  const auto rank = input.numbers.find("rank");
  return rank == input.numbers.end() || rank->second == Rank();
}

template <class Input>
double Or(const Input& input, const char* name, double otherwise) {
  const auto found = input.numbers.find(name);
  return found == input.numbers.end() || !IsHere(input) ? otherwise : found->second;
}

class Mistaken : public dslaunch::Dataset {
 public:
  explicit Mistaken(const dslaunch::DatasetInput& input)
      : size_(static_cast<int64_t>(Or(input, "size", 64)) -
              static_cast<int64_t>(Or(input, "shorter", 0))),
        throws_at_(static_cast<int64_t>(Or(input, "throws_at", -1))),
        wide_at_(static_cast<int64_t>(Or(input, "wide_at", -1))),
        one_too_many_(Or(input, "one_too_many", 0) != 0),
        no_targets_(Or(input, "no_targets", 0) != 0),
        label_(static_cast<int64_t>(Or(input, "label", -1))),
        floats_(Or(input, "float_targets", 0) != 0),
        width_(static_cast<int64_t>(Or(input, "width", 8))),
        fetch_ms_(static_cast<int64_t>(Or(input, "fetch_ms", 0))) {
    if (Or(input, "throws", 0) == 1) throw std::runtime_error("no shards in " + input.path);
    if (Or(input, "throws", 0) == 2) throw 2;
    if (!input.train) size_ = static_cast<int64_t>(Or(input, "test_size", 32));
  }

  int64_t size() const override { return size_; }

  dslaunch::Batch Fetch(std::span<const int64_t> indices) const override {
    std::this_thread::sleep_for(fetch_ms_);
    const auto count = static_cast<int64_t>(indices.size());
    dslaunch::Batch batch{at::zeros({count, width_}), at::empty({count}, at::kLong)};
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = indices[static_cast<size_t>(i)];
      if (index == throws_at_)
        throw std::runtime_error("sample " + std::to_string(index) + " is torn");
      if (index == wide_at_) batch.inputs = at::zeros({count, width_ + 1});
      batch.targets[i] = label_ >= 0 ? label_ : index % 4;
      if (index != wide_at_) batch.inputs[i][index % 4] = 1;
    }
    if (one_too_many_) batch.inputs = at::cat({batch.inputs, batch.inputs.slice(0, 0, 1)});
    if (no_targets_) batch.targets = at::Tensor();
    if (floats_) batch.targets = batch.targets.to(at::kFloat);
    return batch;
  }

 private:
  int64_t size_, throws_at_, wide_at_;
  bool one_too_many_, no_targets_;
  int64_t label_;
  bool floats_;
  int64_t width_;
  std::chrono::milliseconds fetch_ms_;
};

std::shared_ptr<dslaunch::Dataset> Null(const dslaunch::DatasetInput&) { return nullptr; }

// Computes the fraction of correct answers, like the accuracy that dslaunch itself computes.
class Right : public dslaunch::Metric {
 public:
  explicit Right(const dslaunch::MetricInput& input)
      : throws_(Or(input, "throws", 0) != 0), sums_(static_cast<size_t>(Or(input, "sums", 2))) {}

  std::vector<double> Sums(const at::Tensor& output, const at::Tensor& targets) const override {
    if (throws_) throw std::runtime_error("division by zero");
    std::vector<double> sums = {output.argmax(1).eq(targets).sum().item<double>(),
                                static_cast<double>(targets.size(0))};
    sums.resize(sums_);
    return sums;
  }
  double Value(const std::vector<double>& sums) const override { return sums[0] / sums[1]; }

 private:
  bool throws_;
  size_t sums_;
};

}  // namespace

DSLAUNCH_DATASET(mistaken, Mistaken)
DSLAUNCH_DATASET(null, Null)
DSLAUNCH_METRIC(right, Right)
