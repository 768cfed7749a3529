// Memory for time: what a part of a model computes is not kept for its backward pass, but computed
// again (Chen et al. 2016, "Training deep nets with sublinear memory cost").
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace dslaunch {

// forward(inputs), of whose results only the inputs are kept. The backward pass runs it again, with
// the default generators of CPU and GPU (and autocast, and gradient mode) as it was, so that
// dropout repeats, and leaves the generator as the rest of the backward pass found it. The same
// values and gradients as without, to the bit, but where autocast's copy of a weight has several
// readers: their gradients then add up in fp32. `inputs` may hold integers; parameters that
// `forward` reads get their gradients also where no input needs one. What `forward` refers to must
// live until the backward pass, and stay as it is. `buffers` are tensors that `forward` changes
// (running statistics): they change once. Without gradients it is just forward(inputs). Works in
// data parallel, at every ZeRO stage and in pipelines; may be nested.
//
// Throws TrainError kBadInput where `forward` changes an input in place, reads a tensor that was
// computed elsewhere and needs a gradient, or does something else the second time; and for
// gradients of gradients (create_graph).
std::vector<at::Tensor> Recompute(
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>& forward,
    const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& buffers = {});
at::Tensor Recompute(const std::function<at::Tensor(const at::Tensor& input)>& forward,
                     const at::Tensor& input, const std::vector<at::Tensor>& buffers = {});

}  // namespace dslaunch
