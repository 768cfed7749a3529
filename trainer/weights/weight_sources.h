// Reads tensors of safetensors files as values of a model's tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "dslaunch/model.h"
#include "dslaunch/tensor_part.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {

// A tensor of a safetensors file, from which a model's tensor is filled.
struct WeightSource {
  std::shared_ptr<const SafetensorsFile> file;
  SafetensorsFile::Tensor tensor;
  std::string place;  // file and tensor for messages: "model.safetensors: tensor fc1.weight"
};

// The sources of a model's tensors, keyed by the tensors' names in the model.
using WeightSources = std::map<std::string, WeightSource>;

// Returns the parameters and buffers of `model`, keyed by name.
std::map<std::string, at::Tensor> TensorsOf(const Model& model);

// Throws kBadInput unless the values of `source` can fill a tensor with the shape and dtype of
// `target`.
void CheckFits(const WeightSource& source, const at::Tensor& target);

// Returns whether two tensors have the same elements after conversion to `dtype`. Precondition: `a`
// and `b` have the same shape.
bool AreSame(const WeightSource& a, const WeightSource& b, at::ScalarType dtype);

// Fills `part` with the elements of `source` that belong to it, a few MiB at a time. Throws kIo if
// the file cannot be read.
void Fill(const TensorPart& part, const WeightSource& source);

// Returns the whole tensor in the file's dtype. Throws kIo if the file cannot be read.
at::Tensor ReadTensor(const WeightSource& source);

// Calls fill(parts) with contiguous tensors for all tensors of `model` whose names `wanted`
// accepts. Then copies the values to those tensors of the model that are not contiguous.
template <class Wanted, class FillAll>
void FillModel(const Model& model, const Wanted& wanted, const FillAll& fill) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> tensors = TensorsOf(model);
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : tensors) {
    if (wanted(name)) parts.push_back(TensorPart::Whole(name, tensor.contiguous()));
  }
  fill(parts);
  for (const TensorPart& part : parts) {
    const at::Tensor& tensor = tensors.at(part.name);
    if (!tensor.is_contiguous()) tensor.detach().copy_(part.tensor);
  }
}

}  // namespace dslaunch
