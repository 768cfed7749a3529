#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/device/streams.h"
#include "trainer/pipeline/layer_run.h"
#include "trainer/pipeline/stage.h"

namespace dslaunch {
namespace {

constexpr int kRuns = 3;

// Returns copies of the inputs. They are not leaves, so that a layer may change them in place, as
// in a pipeline.
Tensors InputsLike(const Tensors& like) {
  Tensors inputs;
  for (const at::Tensor& tensor : like) {
    inputs.push_back(tensor.detach().requires_grad_(tensor.requires_grad()).clone());
  }
  return inputs;
}

// Returns the time of a forward and a backward pass on `device` in seconds, and the outputs.
std::pair<double, Tensors> RunOnce(const LayerForward& forward, const Tensors& inputs,
                                   c10::Device device) {
  using Clock = std::chrono::steady_clock;
  AwaitStream(device);
  const auto begin = Clock::now();
  Tensors outputs = forward(inputs);
  AwaitStream(device);
  auto seconds = Clock::now() - begin;
  Tensors roots, gradients;
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    roots.push_back(output);
    gradients.push_back(at::ones_like(output));
  }
  if (!roots.empty()) {
    const auto backward = Clock::now();
    torch::autograd::backward(roots, gradients);
    AwaitStream(device);
    seconds += Clock::now() - backward;
  }
  return {std::chrono::duration<double>(seconds).count(), std::move(outputs)};
}

// Returns the least time of kRuns runs in seconds. Replaces `inputs` by the outputs.
double Measure(const LayerForward& forward, Tensors& inputs, c10::Device device) {
  const at::AutoGradMode gradients(true);
  double least = std::numeric_limits<double>::infinity();
  Tensors outputs;
  for (int run = 0; run < kRuns; ++run) {
    double seconds = 0;
    std::tie(seconds, outputs) = RunOnce(forward, InputsLike(inputs), device);
    least = std::min(least, seconds);
  }
  for (at::Tensor& output : outputs) {
    output = output.detach().requires_grad_(output.requires_grad());
  }
  inputs = std::move(outputs);
  return least;
}

// Gives memory to the deferred tensors of a layer until this object is destroyed.
class LentMemory {
 public:
  LentMemory(const ModelLayer& layer, const InitRecording& deferred, c10::Device device) {
    const auto options = at::TensorOptions(device);
    for (const auto& module : layer.modules) {
      for (at::Tensor& parameter : module->parameters()) {
        if (deferred.deferred(parameter))
          Lend(parameter, at::empty_like(parameter, options).normal_(0, 0.02));
      }
      for (at::Tensor& buffer : module->buffers()) {
        if (deferred.deferred(buffer)) Lend(buffer, at::ones_like(buffer, options));
      }
    }
  }
  ~LentMemory() {
    for (auto& [tensor, before] : lent_) {
      tensor.mutable_grad().reset();
      tensor.set_data(before);
    }
  }
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

 private:
  void Lend(at::Tensor& tensor, const at::Tensor& values) {
    lent_.emplace_back(tensor, tensor.detach());
    tensor.set_data(values);
  }
  // Pairs of a deferred tensor and its original data.
  std::vector<std::pair<at::Tensor, at::Tensor>> lent_;
};

std::string Where(size_t index, const std::string& type) {
  return "measuring layer " + std::to_string(index) + " (" + type + ")";
}

}  // namespace

std::vector<double> ProfileLayers(const PipelineModule& module, const Tensors& sample,
                                  c10::Device device) {
  if (sample.empty()) {
    throw TrainError(ExitCode::kBadInput,
                     "partition profile needs a sample, the first layer's inputs for one "
                     "micro-batch (PipelineModule::sample)");
  }
  const BorrowedGenerator generator;
  std::vector<double> seconds;
  Tensors inputs;
  for (const at::Tensor& tensor : sample) inputs.push_back(tensor.to(device));
  for (size_t i = 0; i < module.layers.size(); ++i) {
    const PipelineLayer& layer = module.layers[i];
    const std::string where = Where(i, layer.type);
    const std::shared_ptr<torch::nn::Module> built = layer.build ? layer.build() : nullptr;
    if (built && !device.is_cpu()) built->to(device);
    seconds.push_back(Measure(ForwardOf(layer, built, where), inputs, device));
  }
  return seconds;
}

std::vector<double> ProfileLayers(std::shared_ptr<Model> model, const InitRecording& deferred,
                                  const at::Tensor& sample, c10::Device device) {
  const BorrowedGenerator generator;
  std::vector<double> seconds;
  Tensors inputs = {sample.to(device)};
  for (const ModelLayer& layer : model->Layers()) {
    const LentMemory memory(layer, deferred, device);
    const std::string where = Where(seconds.size(), layer.name);
    seconds.push_back(Measure(ForwardOf(layer, model, where), inputs, device));
  }
  return seconds;
}

}  // namespace dslaunch
