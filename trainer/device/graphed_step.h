// Records a training step as a graph, and then replays the graph with the same memory, so that a
// step needs one call by the CPU instead of thousands.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "trainer/device/accelerator.h"

namespace dslaunch {

// Runs training steps, and replays them as a graph where possible. The first steps run without a
// graph, so that everything that is allocated only once exists; the next step is recorded. A step
// whose inputs have other shapes runs without a graph, and the graph is kept for later steps. If
// such steps continue, they are recorded and replace the graph. Not thread-safe.
class GraphedStep {
 public:
  // Performs the whole work of a step on the device. The inputs are on the device, too. Returns the
  // results.
  using Work = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

  struct Outcome {
    std::vector<at::Tensor> results;  // results of the step, which later steps do not overwrite
    bool replayed = false;            // true if the graph was replayed without a call of `work`
  };

  explicit GraphedStep(Accelerator& accelerator) : accelerator_(accelerator) {}

  // Runs a step with `work` or by replaying the graph. Throws TrainError kBadInput with the reason
  // if the step cannot be recorded. In this case, state of `work` that is not on the device has
  // changed as if the step had run.
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
