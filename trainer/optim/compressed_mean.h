// The mean of the ranks' tensors of which 1 bit of each element travels, with error feedback (Tang
// et al., "1-bit Adam", ICML 2021, section 4; Seide et al. 2014): what compression leaves out of a
// tensor is added to the next one.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace dslaunch {

// What was left out so far, fp32: of this rank's tensor, and of this rank's part of the mean.
struct CompressionError {
  at::Tensor worker;
  at::Tensor server;
};

// One thread.
class CompressedMean {
 public:
  virtual ~CompressedMean() = default;
  virtual int ranks() const = 0;
  // Zeros for a tensor of so many elements, beside `like`. `worker` may be longer than the tensor:
  // it is filled up with zeros, so that the ranks' parts of it are whole bytes of signs.
  virtual CompressionError NoError(int64_t elements, const at::Tensor& like) const = 0;
  // Collective over the ranks, which pass tensors of the same sizes. Replaces each tensor, of any
  // floating dtype, by the compressed mean, the same on all ranks. `errors`: of each.
  virtual void Reduce(const std::vector<at::Tensor>& tensors,
                      const std::vector<CompressionError>& errors) = 0;
};

}  // namespace dslaunch
