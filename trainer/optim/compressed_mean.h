// Computes the mean of the ranks' tensors, which are exchanged with 1 bit per element and error
// feedback (Tang et al., "1-bit Adam", ICML 2021, section 4; Seide et al. 2014): the error of
// compressing a tensor is added to the next tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace dslaunch {

// Accumulated compression errors in fp32: of this rank's tensor (worker) and of this rank's part of
// the mean (server).
struct CompressionError {
  at::Tensor worker;
  at::Tensor server;
};

// Reduces tensors to their compressed mean. Not thread-safe.
class CompressedMean {
 public:
  virtual ~CompressedMean() = default;
  virtual int ranks() const = 0;
  // Returns errors of zero for a tensor with `elements` elements, on the device of `like`. `worker`
  // may be longer than the tensor: it is padded with zeros so that the signs of each rank's part
  // fill whole bytes.
  virtual CompressionError NoError(int64_t elements, const at::Tensor& like) const = 0;
  // Replaces each tensor, of any floating-point dtype, by the compressed mean, which is equal on
  // all ranks. Collective; the ranks must pass tensors of the same sizes. `errors` has an entry for
  // each tensor, which Reduce updates.
  virtual void Reduce(const std::vector<at::Tensor>& tensors,
                      const std::vector<CompressionError>& errors) = 0;
};

}  // namespace dslaunch
