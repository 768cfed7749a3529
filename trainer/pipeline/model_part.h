// The part of a model that some of its layers use.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <set>
#include <vector>

#include "dslaunch/model.h"
#include "dslaunch/named_tensor.h"

namespace dslaunch {

// The modules and tensors that a layer, or several layers, use.
struct LayerReads {
  std::set<const torch::nn::Module*> modules;
  std::set<const at::TensorImpl*> tensors;  // parameters and buffers

  bool Has(const at::Tensor& tensor) const {
    return tensors.contains(tensor.unsafeGetTensorImpl());
  }
  void Add(const LayerReads& other);
};

// Returns the reads of each layer. Throws TrainError kBadInput if a module is not registered in the
// model, or if no layer reads a parameter or buffer, which would then be on no stage and in no
// checkpoint.
std::vector<LayerReads> ReadsOf(const std::vector<ModelLayer>& layers, const Model& model);

// Holds the modules in `own` by their names in the model. A module that contains them is replaced
// by one of the same name without tensors.
class ModelPart : public torch::nn::Module {
 public:
  ModelPart(std::shared_ptr<Model> model, const LayerReads& own);
  // Sets the mode of the whole model, because layers may read the mode of modules that are not
  // here.
  void train(bool on) override;

 private:
  std::shared_ptr<Model> model_;
};

}  // namespace dslaunch
