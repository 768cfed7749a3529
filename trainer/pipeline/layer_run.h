// How a layer of a pipeline is built and run: what goes wrong in it says where.
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

// Throws the exception that is being handled with "<where>: " before its text: of a TrainError and
// a c10::Error the same. What other ranks or the network have done, it throws as it is.
[[noreturn]] void RethrowFrom(const std::string& where);

// `layer` on `module`, which is null for a function. Throws kBadInput where it returns no tensor.
LayerForward ForwardOf(const PipelineLayer& layer, std::shared_ptr<torch::nn::Module> module,
                       std::string where);
// `model`, to which the layer refers, lives as long as the result.
LayerForward ForwardOf(const ModelLayer& layer, std::shared_ptr<Model> model, std::string where);

// While it lives, the default generators of the CPU and of `device` are the owner's; then they are
// as they were.
class BorrowedGenerator {
 public:
  explicit BorrowedGenerator(c10::Device device = c10::kCPU);
  ~BorrowedGenerator();
  BorrowedGenerator(const BorrowedGenerator&) = delete;
  BorrowedGenerator& operator=(const BorrowedGenerator&) = delete;

  uint64_t seed() const { return seed_; }  // that the CPU's had
  void Seed(uint64_t seed);

 private:
  const c10::Device device_;
  std::vector<at::Tensor> states_;
  uint64_t seed_;
};

}  // namespace dslaunch
