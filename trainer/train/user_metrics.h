// Computes metrics of users' shared libraries (dslaunch/plugin.h) in evaluations.
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
  // Loads the libraries, which are never unloaded. Throws TrainError kBadInput, naming the library.
  explicit UserMetrics(const std::vector<MetricConfig>& configs);

  // The metrics' sums in one evaluation. An error of a metric is kept until Results(), because
  // other ranks would otherwise wait for this rank until a timeout.
  class Evaluation {
   public:
    explicit Evaluation(const UserMetrics& metrics)
        : metrics_(metrics), sums_(metrics.metrics_.size()) {}

    // Returns whether there are metrics. If so, Add() needs the model's output.
    bool any() const { return !sums_.empty(); }
    // Adds a batch to the sums of all metrics.
    void Add(const at::Tensor& output, const at::Tensor& targets);
    // Returns the results over all ranks. Collective. Throws TrainError kBadInput on all ranks if a
    // metric has failed on one of them.
    EvaluationResults Results(const ProcessGroup& group) const;

   private:
    const UserMetrics& metrics_;
    std::vector<std::vector<double>> sums_;  // sums of each metric; empty before the first Add()
    std::string failure_;                    // text from FailureOf; empty if no metric has failed
  };

 private:
  struct Loaded {
    PluginPart part;
    std::shared_ptr<Metric> metric;
  };
  std::vector<Loaded> metrics_;
};

}  // namespace dslaunch
