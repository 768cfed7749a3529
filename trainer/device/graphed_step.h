// A training step as a graph: recorded once, then replayed with the same memory, so that a step
// takes one CPU call instead of thousands.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "trainer/device/accelerator.h"

namespace dslaunch {

// Used by one thread. The first steps run without a graph, so that everything allocated once
// exists; the next step is recorded. A step whose inputs have other shapes runs without a graph,
// which is kept for later steps. If such steps continue, they are recorded and replace the graph.
class GraphedStep {
 public:
  // Performs everything that a step does on the device, given its inputs there, and returns the
  // results.
  using Work = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

  struct Outcome {
    std::vector<at::Tensor> results;  // results, which later steps do not overwrite
    bool replayed = false;            // `work` was not called
  };

  explicit GraphedStep(Accelerator& accelerator) : accelerator_(accelerator) {}

  // Throws TrainError kBadInput, with the reason, if the step cannot be recorded; state that `work`
  // keeps outside of the device is then as `work` left it.
  Outcome Run(const std::vector<at::Tensor>& inputs, const Work& work);

 private:
  void Record(const std::vector<at::Tensor>& inputs, const Work& work);
  Outcome Replay(const std::vector<at::Tensor>& inputs);

  Accelerator& accelerator_;
  std::unique_ptr<StepGraph> graph_;
  std::vector<at::Tensor> inputs_;   // tensors that the graph reads
  std::vector<at::Tensor> results_;  // tensors that the graph writes
  std::vector<at::Tensor> last_;     // inputs of the last step without a graph
  int alike_ = 0;  // number of successive steps whose inputs had the shapes of `last_`
};

}  // namespace dslaunch
