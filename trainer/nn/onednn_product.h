// Matrix products in fp32 on the CPU by oneDNN. On an AMD EPYC they take about a tenth less time
// for a transformer's layers than MKL, which at::addmm and at::mm use; the last bits differ.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace dslaunch {

// Returns x [rows, in] times m [in, out], plus bias [out] if it is defined. Returns nullopt if
// at::addmm must be called instead: if autograd or autocast must see the product, for other dtypes
// and devices, for small products, and unless x is row-major and m is row- or column-major, both
// without gaps.
std::optional<at::Tensor> OneDnnProduct(const at::Tensor& x, const at::Tensor& m,
                                        const at::Tensor& bias = {});

}  // namespace dslaunch
