#include "trainer/pipeline/layer_run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/linear.h>

#include <mutex>
#include <stdexcept>
#include <typeinfo>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/comm/explain.h"
#include "trainer/nn/seed_generators.h"
#include "trainer/nn/split_backward.h"

namespace dslaunch {
namespace {

bool OfOtherRanks(const std::string& what) {
  return ClassifyCommFailure(what) != CommFailure::kNone;
}

void CheckOutputs(const Tensors& outputs) {
  if (outputs.empty()) RefuseInput("returns no tensor; a layer must return at least one");
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined()) continue;
    RefuseInput("output " + std::to_string(i + 1) + " of " + std::to_string(outputs.size()) +
                " is an undefined tensor; a layer must return defined tensors");
  }
}

LayerForward Guarded(LayerForward forward, std::string where) {
  return [forward = std::move(forward), where = std::move(where)](const Tensors& inputs) {
    try {
      Tensors outputs = forward(inputs);
      CheckOutputs(outputs);
      return outputs;
    } catch (...) {
      RethrowFrom(where);
    }
  };
}

// Calls the layer by ApplyLinear, so that its weight gradients can be deferred (split_backward.h).
Tensors ForwardLinear(const torch::nn::LinearImpl& linear, const Tensors& inputs) {
  if (inputs.size() != 1) pipeline_detail::FailInputs("torch::nn::LinearImpl", 1, inputs.size());
  return {ApplyLinear(inputs[0], linear.weight, linear.bias)};
}

}  // namespace

void RethrowFrom(const std::string& where) {
  try {
    throw;
  } catch (const TrainError& error) {
    if (error.code() == ExitCode::kUnavailable || error.code() == ExitCode::kTimedOut) throw;
    throw TrainError(error.code(), where + ": " + error.what());
  } catch (const c10::DistError&) {
    throw;
  } catch (const c10::Error& error) {
    if (OfOtherRanks(error.what_without_backtrace())) throw;
    throw c10::Error(where + ": " + error.what_without_backtrace(), error.backtrace());
  } catch (const std::exception& error) {
    if (OfOtherRanks(error.what())) throw;
    throw std::runtime_error(where + ": " + error.what());
  }
}

LayerForward ForwardOf(const PipelineLayer& layer, std::shared_ptr<torch::nn::Module> module,
                       std::string where) {
  // A class that derives from LinearImpl may have another forward, so the type is compared exactly.
  const torch::nn::Module* maker = module.get();
  if (layer.forwards_module && maker != nullptr &&
      typeid(*maker) == typeid(torch::nn::LinearImpl)) {
    auto linear = std::static_pointer_cast<torch::nn::LinearImpl>(std::move(module));
    return Guarded([linear = std::move(linear)](
                       const Tensors& inputs) { return ForwardLinear(*linear, inputs); },
                   std::move(where));
  }
  return Guarded([forward = layer.forward, module = std::move(module)](
                     const Tensors& inputs) { return forward(module.get(), inputs); },
                 std::move(where));
}

LayerForward ForwardOf(const ModelLayer& layer, std::shared_ptr<Model> model, std::string where) {
  return Guarded(
      [forward = layer.forward, name = layer.name,
       model = std::move(model)](const Tensors& inputs) {
        if (inputs.size() != 1) pipeline_detail::FailInputs(name, 1, inputs.size());
        return Tensors{forward(inputs[0])};
      },
      std::move(where));
}

BorrowedGenerator::BorrowedGenerator(c10::Device device)
    : device_(device), seed_(at::detail::getDefaultCPUGenerator().current_seed()) {
  for (at::Generator& generator : DefaultGenerators(device_)) {
    const std::lock_guard lock(generator.mutex());
    states_.push_back(generator.get_state());
  }
}

BorrowedGenerator::~BorrowedGenerator() {
  std::vector<at::Generator> generators = DefaultGenerators(device_);
  for (size_t i = 0; i < generators.size(); ++i) {
    const std::lock_guard lock(generators[i].mutex());
    generators[i].set_state(states_[i]);
  }
}

void BorrowedGenerator::Seed(uint64_t seed) { SeedGenerators(device_, seed); }

}  // namespace dslaunch
