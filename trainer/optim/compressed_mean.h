// The mean of the ranks' tensors, exchanged with 1 bit per element and error feedback (Tang et al.,
// "1-bit Adam", ICML 2021, section 4; Seide et al. 2014): the error of compressing a tensor is
// added to the next one.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace dslaunch {

// The accumulated compression errors, in fp32: of this rank's tensor, and of this rank's part of
// the mean.
struct CompressionError {
  at::Tensor worker;
  at::Tensor server;
};

// Used by one thread.
class CompressedMean {
 public:
  virtual ~CompressedMean() = default;
  virtual int ranks() const = 0;
  // Returns zero errors for a tensor with `elements` elements, on the device of `like`. `worker`
  // may be longer than the tensor; it is padded with zeros so that each rank's part is a whole
  // number of bytes of signs.
  virtual CompressionError NoError(int64_t elements, const at::Tensor& like) const = 0;
  // Replaces each tensor, of any floating dtype, by the compressed mean, which is the same on all
  // ranks. Collective; the ranks pass tensors of the same sizes. `errors` has an entry for each
  // tensor.
  virtual void Reduce(const std::vector<at::Tensor>& tensors,
                      const std::vector<CompressionError>& errors) = 0;
};

}  // namespace dslaunch
