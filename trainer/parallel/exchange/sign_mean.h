// CompressedMean over the ranks of a group, as DeepSpeed computes it. Each rank has a part of the
// elements: it gets from every other rank the signs of that part and one scale, and sends the signs
// and the scale of the mean to all. So N ranks exchange about 2 bits of each element, in two
// messages for any number of tensors.
#pragma once

#include "dslaunch/process_group.h"
#include "trainer/optim/compressed_mean.h"

namespace dslaunch {

class SignMean : public CompressedMean {
 public:
  explicit SignMean(const ProcessGroup& group) : group_(group) {}  // must outlive this
  int ranks() const override { return group_.world_size(); }
  CompressionError NoError(int64_t elements, const at::Tensor& like) const override;
  void Reduce(const std::vector<at::Tensor>& tensors,
              const std::vector<CompressionError>& errors) override;

 private:
  const ProcessGroup& group_;
};

// Subtracts `scale`, a scalar on the same device, from each of the 8 n elements of `values` (fp32,
// contiguous) that is not negative, and adds it to the others. Writes the signs, a bit each (1: not
// negative), to the n bytes of `packed`.
void PackSigns(const at::Tensor& values, const at::Tensor& scale, const at::Tensor& packed);

// Adds `scale` to each element of `sum` whose bit is 1, and subtracts it from the others.
void AddSigns(const at::Tensor& packed, const at::Tensor& scale, const at::Tensor& sum);

}  // namespace dslaunch
