#include "trainer/parallel/exchange/flat_mean.h"

#include <ATen/ATen.h>

namespace dslaunch {
namespace {

constexpr int64_t kFlatBytes = 25 << 20;  // approximate size of a message, in bytes

void AllReduceOnce(const ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                   at::ScalarType dtype, GradientScale scale) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.flatten().to(dtype));
  at::Tensor message = at::cat(flat);
  if (scale.before != 1) message.mul_(scale.before);
  group.AllReduce(message);
  if (scale.after != 1) message.mul_(scale.after);
  int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(message.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += tensor.numel();
  }
}

}  // namespace

void AllReduceFlat(const ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                   std::optional<at::ScalarType> dtype, GradientScale scale) {
  if (group.world_size() == 1) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> message;
  int64_t bytes = 0;
  const auto travels_in = [&](const at::Tensor& tensor) {
    return dtype.value_or(tensor.scalar_type());
  };
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    if (!message.empty() && (bytes >= kFlatBytes || travels_in(tensor) != travels_in(message[0]))) {
      AllReduceOnce(group, message, travels_in(message[0]), scale);
      message.clear();
      bytes = 0;
    }
    message.push_back(tensor);
    bytes += tensor.numel() * static_cast<int64_t>(c10::elementSize(travels_in(tensor)));
  }
  if (!message.empty()) AllReduceOnce(group, message, travels_in(message[0]), scale);
}

}  // namespace dslaunch
