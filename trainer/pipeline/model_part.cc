#include "trainer/pipeline/model_part.h"

#include <string>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/pipeline/stage_cut.h"

namespace dslaunch {
namespace {

using torch::nn::Module;

std::vector<NamedTensor> ParametersAndBuffers(const Module& module) {
  std::vector<NamedTensor> tensors = Unique(module.named_parameters());
  for (NamedTensor& item : Unique(module.named_buffers())) tensors.push_back(std::move(item));
  return tensors;
}

void CheckComplete(const Model& model, const std::vector<LayerReads>& layers) {
  LayerReads all;
  for (const LayerReads& reads : layers) all.Add(reads);
  for (const NamedTensor& item : ParametersAndBuffers(model)) {
    if (all.Has(item.tensor)) continue;
    RefuseInput("no layer of the model reads " + item.name +
                "; list its module in one of the layers that Layers() returns");
  }
}

// Copies to `to` the modules and tensors of `from` that are in `own`. A tensor is named by the
// first module in which it was registered, which the layers may not read, so tensors are registered
// separately.
void Register(const Module& from, Module& to, const LayerReads& own) {
  for (const auto& item : from.named_parameters(/*recurse=*/false)) {
    if (!own.Has(item.value())) continue;
    to.register_parameter(item.key(), item.value(), item.value().requires_grad());
  }
  for (const auto& item : from.named_buffers(/*recurse=*/false)) {
    if (own.Has(item.value())) to.register_buffer(item.key(), item.value());
  }
  for (const auto& child : from.named_children()) {
    if (own.modules.contains(child.value().get())) {
      to.register_module(child.key(), child.value());
      continue;
    }
    const auto part = std::make_shared<Module>();
    Register(*child.value(), *part, own);
    if (!part->children().empty() || !ParametersAndBuffers(*part).empty()) {
      to.register_module(child.key(), part);
    }
  }
}

}  // namespace

void LayerReads::Add(const LayerReads& other) {
  modules.insert(other.modules.begin(), other.modules.end());
  tensors.insert(other.tensors.begin(), other.tensors.end());
}

std::vector<LayerReads> ReadsOf(const std::vector<ModelLayer>& layers, const Model& model) {
  std::set<const Module*> known;
  for (const std::shared_ptr<Module>& module : model.modules()) known.insert(module.get());
  std::vector<LayerReads> all;
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerReads& reads = all.emplace_back();
    for (const std::shared_ptr<Module>& listed : layers[i].modules) {
      if (!known.contains(listed.get())) {
        RefuseInput(LayerText(i, layers[i].name) +
                    " lists a module that is not registered in the model; list only modules that "
                    "were passed to register_module");
      }
      for (const std::shared_ptr<Module>& module : listed->modules()) {
        reads.modules.insert(module.get());
      }
      for (const NamedTensor& item : ParametersAndBuffers(*listed)) {
        reads.tensors.insert(item.tensor.unsafeGetTensorImpl());
      }
    }
  }
  CheckComplete(model, all);
  return all;
}

ModelPart::ModelPart(std::shared_ptr<Model> model, const LayerReads& own)
    : model_(std::move(model)) {
  Register(*model_, *this, own);
}

void ModelPart::train(bool on) {
  model_->train(on);
  Module::train(on);
}

}  // namespace dslaunch
