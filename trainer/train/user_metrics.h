// Metrics from users' shared libraries (dslaunch/plugin.h) that evaluations compute.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "dslaunch/metric.h"
#include "dslaunch/process_group.h"
#include "proto/contract/status_line.h"
#include "trainer/config/recipe.h"
#include "trainer/plugin/plugin_library.h"

namespace dslaunch {

class UserMetrics {
 public:
  // Loads the libraries, which then stay loaded. Throws TrainError kBadInput, naming the library.
  explicit UserMetrics(const std::vector<MetricConfig>& configs);

  // The sums of one evaluation. An error of a metric is kept until Results, so that no rank waits
  // for another in vain.
  class Evaluation {
   public:
    explicit Evaluation(const UserMetrics& metrics)
        : metrics_(metrics), sums_(metrics.metrics_.size()) {}

    // Whether there are metrics; they read the model's output.
    bool any() const { return !sums_.empty(); }
    void Add(const at::Tensor& output, const at::Tensor& targets);
    // Returns the results over all ranks. Collective. Throws TrainError kBadInput on all ranks if a
    // metric has failed on one.
    EvaluationResults Results(const ProcessGroup& group) const;

   private:
    const UserMetrics& metrics_;
    std::vector<std::vector<double>> sums_;  // sums of each metric; empty before the first addition
    std::string failure_;                    // text from FailureOf, or empty
  };

 private:
  struct Loaded {
    PluginPart part;
    std::shared_ptr<Metric> metric;
  };
  std::vector<Loaded> metrics_;
};

}  // namespace dslaunch
