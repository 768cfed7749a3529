// Matrix products of fp32 on the CPU by oneDNN. On an AMD EPYC it takes about a tenth less time for
// those of a transformer's layers than MKL, which at::addmm and at::mm use; the last bits differ.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace dslaunch {

// x [rows, in] m [in, out], plus bias [out] where it is defined. Nothing where at::addmm is to be
// called: where autograd or autocast is to see the product, for other dtypes and devices, for small
// products, and unless x lies by rows, and m by rows or by columns, without gaps.
std::optional<at::Tensor> OneDnnProduct(const at::Tensor& x, const at::Tensor& m,
                                        const at::Tensor& bias = {});

}  // namespace dslaunch
