// A training step as a graph: recorded once, then replayed with the same memory, so that a step
// costs the CPU one call instead of thousands.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "trainer/device/accelerator.h"

namespace dslaunch {

// One thread. The first steps run without a graph, so that everything that is allocated once
// exists; the next step is recorded. A step whose inputs have other shapes runs without a graph,
// and the graph is kept for later steps; if such steps continue, they are recorded and replace the
// graph.
class GraphedStep {
 public:
  // All that a step does to the device, given its inputs there; returns what it computed.
  using Work = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

  struct Outcome {
    std::vector<at::Tensor> results;  // which later steps leave alone
    bool replayed = false;            // `work` was not called
  };

  explicit GraphedStep(Accelerator& accelerator) : accelerator_(accelerator) {}

  // Throws TrainError kBadInput where the step cannot be recorded, with the reason; what `work`
  // keeps outside of the device is then as `work` left it.
  Outcome Run(const std::vector<at::Tensor>& inputs, const Work& work);

 private:
  void Record(const std::vector<at::Tensor>& inputs, const Work& work);
  Outcome Replay(const std::vector<at::Tensor>& inputs);

  Accelerator& accelerator_;
  std::unique_ptr<StepGraph> graph_;
  std::vector<at::Tensor> inputs_;   // that the graph reads
  std::vector<at::Tensor> results_;  // that it writes
  std::vector<at::Tensor> last_;     // inputs of the last step that had no graph
  int alike_ = 0;                    // steps in a row whose inputs had the shapes of `last_`
};

}  // namespace dslaunch
