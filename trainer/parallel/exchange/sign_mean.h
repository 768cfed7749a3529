// Computes a CompressedMean over the ranks of a group, like DeepSpeed. Each rank reduces one part
// of the elements: it gets the signs of that part and one scale from every other rank, and sends
// the signs and the scale of the mean to all ranks. Each rank therefore sends about 2 bits per
// element, in two messages for any number of tensors.
#pragma once

#include "dslaunch/process_group.h"
#include "trainer/optim/compressed_mean.h"

namespace dslaunch {

class SignMean : public CompressedMean {
 public:
  // Creates the mean over `group`, which must outlive this object.
  explicit SignMean(const ProcessGroup& group) : group_(group) {}
  int ranks() const override { return group_.world_size(); }
  CompressionError NoError(int64_t elements, const at::Tensor& like) const override;
  void Reduce(const std::vector<at::Tensor>& tensors,
              const std::vector<CompressionError>& errors) override;

 private:
  const ProcessGroup& group_;
};

// Writes the signs of the 8 n elements of `values` to the n bytes of `packed`, one bit per element
// (1 if not negative). Then subtracts `scale` from each element that is not negative, and adds it
// to each negative element. `values` is contiguous fp32; `scale` is a scalar on the same device.
void PackSigns(const at::Tensor& values, const at::Tensor& scale, const at::Tensor& packed);

// Adds `scale` to each element of `sum` whose bit in `packed` is 1, and subtracts it from each
// element whose bit is 0.
void AddSigns(const at::Tensor& packed, const at::Tensor& scale, const at::Tensor& sum);

}  // namespace dslaunch
