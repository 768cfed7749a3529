// Implements the exchanges of layers that are divided over a tensor-parallel group (Megatron-LM:
// Shoeybi et al., arXiv 1909.08053, section 3; with sequence parallelism Korthikanti et al., arXiv
// 2205.05198, section 4.2). Between EnterRegion and LeaveRegion each rank computes its part of a
// layer. Outside of regions all ranks compute the same values or, with sequence parallelism, the
// values of different tokens.
//
// Each exchange is a LibTorch operator below autograd with a shape function, so that ZeRO's
// gatherer and ShapePass can intercept it. All exchanges are collective over `tensor.group`. They
// return their input, or a view of their input, if `tensor` divides nothing. Second derivatives are
// not available.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {

// Returns x, [B, T, H]. The gradient of x is the sum of the ranks' gradients. With sequence
// parallelism x is [B, T / parts, H], and the result is the tokens of all ranks, [B, T, H]. The
// gradient of x is then this rank's tokens of the sum.
at::Tensor EnterRegion(const at::Tensor& x, const TensorParallel& tensor);

// Returns the sum of x, [B, T, H], over the ranks. The gradient is passed on unchanged. With
// sequence parallelism the result is this rank's tokens of the sum, [B, T / parts, H]. The gradient
// of x is then the gradient of all ranks' tokens. In that case the function throws kBadInput unless
// T is a multiple of the number of parts.
at::Tensor LeaveRegion(const at::Tensor& x, const TensorParallel& tensor);

// Returns `parameter`, which every rank has whole and uses for a part of the tokens or the heads.
// The gradient of `parameter` is the sum of the ranks' gradients.
at::Tensor SumGradients(const at::Tensor& parameter, const TensorParallel& tensor);

// Returns a whole parameter for use outside of regions: SumGradients with sequence parallelism,
// else `parameter`.
at::Tensor OutsideRegions(const at::Tensor& parameter, const TensorParallel& tensor);

// Returns LeaveRegion(x) plus the whole `bias`, [H], which is added only once. `bias` may be
// undefined.
at::Tensor LeaveRegionAndAdd(const at::Tensor& x, const at::Tensor& bias,
                             const TensorParallel& tensor);

// Returns `part`, which `holders` neighboring ranks have in common, so that there are tensor.parts
// / holders different parts. The gradient of `part` is the sum of its holders' gradients.
// Precondition: `holders` divides tensor.parts.
at::Tensor SumHoldersGradients(const at::Tensor& part, int holders, const TensorParallel& tensor);

// Returns the elementwise sum of x over the ranks, as a new tensor. Not differentiable.
at::Tensor SumOverParts(const at::Tensor& x, const TensorParallel& tensor);
// Returns the elementwise maximum of x over the ranks, as a new tensor. Not differentiable.
at::Tensor MaxOverParts(const at::Tensor& x, const TensorParallel& tensor);

// Returns the tensors of all ranks, [..., n], joined along the last dimension: [..., parts * n].
// Not differentiable.
at::Tensor JoinParts(const at::Tensor& x, const TensorParallel& tensor);

}  // namespace dslaunch
