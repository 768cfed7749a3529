// Extracts the part of a model that some of its layers use.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <set>
#include <vector>

#include "dslaunch/model.h"
#include "dslaunch/named_tensor.h"

namespace dslaunch {

// The modules and tensors that one or several layers use.
struct LayerReads {
  std::set<const torch::nn::Module*> modules;
  std::set<const at::TensorImpl*> tensors;  // parameters and buffers that the layers use

  bool Has(const at::Tensor& tensor) const {
    return tensors.contains(tensor.unsafeGetTensorImpl());
  }
  void Add(const LayerReads& other);
};

// Returns the modules and tensors that each layer uses. Throws TrainError kBadInput if a module is
// not registered in the model. Also throws it if no layer uses some parameter or buffer, because no
// stage and no checkpoint would contain that tensor.
std::vector<LayerReads> ReadsOf(const std::vector<ModelLayer>& layers, const Model& model);

// A module that contains the modules in `own` under their names in the model. A parent of these
// modules that is not in `own` is replaced by a module with the same name that has only the tensors
// in `own`.
class ModelPart : public torch::nn::Module {
 public:
  ModelPart(std::shared_ptr<Model> model, const LayerReads& own);
  // Sets the mode of the whole model, because layers may read the mode of modules that are not in
  // this part.
  void train(bool on) override;

 private:
  std::shared_ptr<Model> model_;
};

}  // namespace dslaunch
