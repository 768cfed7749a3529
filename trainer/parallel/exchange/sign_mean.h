// CompressedMean over the ranks of a group, as DeepSpeed computes it: each rank sends every other
// one the signs of its part, and one size for all of them; that rank sends the signs and the size
// of the parts' mean to all. So N ranks exchange about 2 bits of each element, in two messages for
// any number of tensors.
#pragma once

#include "dslaunch/process_group.h"
#include "trainer/optim/compressed_mean.h"

namespace dslaunch {

class SignMean : public CompressedMean {
 public:
  explicit SignMean(const ProcessGroup& group) : group_(group) {}  // which must outlive this
  int ranks() const override { return group_.world_size(); }
  CompressionError NoError(int64_t elements, const at::Tensor& like) const override;
  void Reduce(const std::vector<at::Tensor>& tensors,
              const std::vector<CompressionError>& errors) override;

 private:
  const ProcessGroup& group_;
};

// Takes `scale` (a scalar beside it) off each element of `values`, fp32 and contiguous, of which
// there are 8 n, that is not negative, and adds it to the others. The signs, a bit each (1: not
// negative), become the n bytes of `packed`.
void TakeSigns(const at::Tensor& values, const at::Tensor& scale, const at::Tensor& packed);

// Adds `scale` to each element of `sum` where the bit is 1, and takes it off where it is 0.
void AddSigns(const at::Tensor& packed, const at::Tensor& scale, const at::Tensor& sum);

}  // namespace dslaunch
