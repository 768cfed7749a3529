// The part of a model that some of its layers read.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <set>
#include <vector>

#include "dslaunch/model.h"
#include "dslaunch/named_tensor.h"

namespace dslaunch {

// What a layer of a model reads, or several.
struct LayerReads {
  std::set<const torch::nn::Module*> modules;
  std::set<const at::TensorImpl*> tensors;  // parameters and buffers

  bool Has(const at::Tensor& tensor) const {
    return tensors.contains(tensor.unsafeGetTensorImpl());
  }
  void Add(const LayerReads& other);
};

// Of each layer. Throws TrainError kBadInput for a module that is not the model's, and where a
// parameter or buffer is read by none: it would be on no stage, and in no checkpoint.
std::vector<LayerReads> ReadsOf(const std::vector<ModelLayer>& layers, const Model& model);

// The modules that `own` has, by the names that they have in the model. Modules that they are in
// have places here, but no tensors.
class ModelPart : public torch::nn::Module {
 public:
  ModelPart(std::shared_ptr<Model> model, const LayerReads& own);
  // Of the model too: layers may ask modules that are not here for their mode.
  void train(bool on) override;

 private:
  std::shared_ptr<Model> model_;
};

}  // namespace dslaunch
