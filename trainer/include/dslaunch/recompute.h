// Implements activation recomputation: the backward pass computes the results of a part of a model
// again, so they need not be kept (Chen et al. 2016, "Training deep nets with sublinear memory
// cost").
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace dslaunch {

// Returns forward(inputs) and keeps only the inputs. The backward pass runs `forward` again with
// the same state of the default CPU and GPU generators, autocast and gradient mode, so dropout is
// the same; it restores the generators afterwards. Values and gradients are bitwise equal to those
// without recomputation, with one exception: gradients of a weight whose autocast copy is read
// several times are summed in fp32. `inputs` may include integer tensors. Parameters that `forward`
// reads get gradients even if no input requires one. Everything that `forward` refers to must stay
// alive and unchanged until the backward pass. `buffers` are tensors that `forward` changes
// (running statistics); they are updated only once. If gradients are disabled, it only calls
// forward(inputs). Works in data parallel training, at every ZeRO stage and in pipelines; calls may
// be nested.
//
// Throws TrainError kBadInput if `forward` changes an input in place, reads a tensor that was
// computed outside it and requires a gradient, or computes different results the second time. Also
// throws it for gradients of gradients (create_graph).
std::vector<at::Tensor> Recompute(
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>& forward,
    const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& buffers = {});
at::Tensor Recompute(const std::function<at::Tensor(const at::Tensor& input)>& forward,
                     const at::Tensor& input, const std::vector<at::Tensor>& buffers = {});

}  // namespace dslaunch
