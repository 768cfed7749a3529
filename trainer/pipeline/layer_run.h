// Builds and runs the layers of a pipeline, and names the layer in every error.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dslaunch/model.h"
#include "dslaunch/pipeline.h"

namespace dslaunch {

using LayerForward = std::function<Tensors(const Tensors& inputs)>;

// Rethrows the exception that is being handled with "<where>: " before its text. A TrainError and a
// c10::Error keep their type; other exceptions become std::runtime_error. Errors caused by other
// ranks or the network are rethrown unchanged.
[[noreturn]] void RethrowFrom(const std::string& where);

// Returns the forward function of `layer`, which runs on `module` (null for a layer without a
// module). The function throws TrainError kBadInput if the layer returns no tensor or an undefined
// tensor. It throws all errors through RethrowFrom(where).
LayerForward ForwardOf(const PipelineLayer& layer, std::shared_ptr<torch::nn::Module> module,
                       std::string where);
// Returns the forward function of a layer of `model`, which the result keeps alive.
LayerForward ForwardOf(const ModelLayer& layer, std::shared_ptr<Model> model, std::string where);

// Saves the default generators of the CPU and of `device`, so that the owner of this object may
// seed them. The destructor restores the generators.
class BorrowedGenerator {
 public:
  explicit BorrowedGenerator(c10::Device device = c10::kCPU);
  ~BorrowedGenerator();
  BorrowedGenerator(const BorrowedGenerator&) = delete;
  BorrowedGenerator& operator=(const BorrowedGenerator&) = delete;

  uint64_t seed() const { return seed_; }  // returns the seed of the CPU generator at construction
  void Seed(uint64_t seed);

 private:
  const c10::Device device_;
  std::vector<at::Tensor> states_;
  uint64_t seed_;
};

}  // namespace dslaunch
