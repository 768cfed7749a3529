// The exchanges of layers that are divided over a tensor-parallel group (Megatron-LM: Shoeybi et
// al., arXiv 1909.08053, section 3; with sequence parallelism Korthikanti et al., arXiv 2205.05198,
// section 4.2). Between EnterRegion and LeaveRegion each rank computes its part of a layer; outside
// all ranks compute the same or, with sequence parallelism, the same for different tokens.
//
// Each exchange is a LibTorch operator below autograd with a shape function, so that ZeRO's
// gatherer and ShapePass see it. All are collective over `tensor.group` and return their input, or
// a view of it, if `tensor` divides nothing. Gradients of gradients are not available.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {

// [B, T, H] -> the same; its gradient is the sum of the ranks' gradients. With sequence
// parallelism [B, T / parts, H] -> [B, T, H]: the tokens of all ranks; its gradient is this rank's
// tokens of that sum.
at::Tensor EnterRegion(const at::Tensor& x, const TensorParallel& tensor);

// [B, T, H] -> the sum over the ranks; its gradient is passed on unchanged. With sequence
// parallelism -> [B, T / parts, H], this rank's tokens of the sum; its gradient is the gradient of
// all ranks' tokens. Throws kBadInput unless T is a multiple of the parts then.
at::Tensor LeaveRegion(const at::Tensor& x, const TensorParallel& tensor);

// Returns a parameter that every rank has whole and uses for a part of the tokens or the heads.
// Its gradient is the sum of the ranks' gradients.
at::Tensor SumGradients(const at::Tensor& parameter, const TensorParallel& tensor);

// Returns a whole parameter for use outside of regions: SumGradients with sequence parallelism,
// else `parameter`.
at::Tensor OutsideRegions(const at::Tensor& parameter, const TensorParallel& tensor);

// Returns LeaveRegion(x) plus a whole bias [H], which is added once. `bias` may be undefined.
at::Tensor LeaveRegionAndAdd(const at::Tensor& x, const at::Tensor& bias,
                             const TensorParallel& tensor);

// Returns a part that groups of `holders` neighboring ranks have in common: parts / holders
// different ones. Its gradient is the sum of its holders' gradients. Precondition: `holders`
// divides tensor.parts.
at::Tensor SumHoldersGradients(const at::Tensor& part, int holders, const TensorParallel& tensor);

// Elementwise over the ranks, into new tensors. Not differentiable.
at::Tensor SumOverParts(const at::Tensor& x, const TensorParallel& tensor);
at::Tensor MaxOverParts(const at::Tensor& x, const TensorParallel& tensor);

// [..., n] -> [..., parts * n], the last dimensions of all ranks side by side. Not differentiable.
at::Tensor JoinParts(const at::Tensor& x, const TensorParallel& tensor);

}  // namespace dslaunch
