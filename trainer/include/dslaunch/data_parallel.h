// Trains with several devices in one process, like torch.nn.DataParallel. Each forward pass copies
// the module to every device, gives each copy a part of the batch, and joins the outputs. The
// backward pass adds the copies' gradients to the module's own parameters, which any torch::optim
// optimizer updates.
//
//   dslaunch::DataParallel parallel(model, {torch::Device("cuda:0"), torch::Device("cuda:1")});
//   at::Tensor loss = CrossEntropy(parallel.Forward(images), labels);
//
// This is the simplest way to use the devices of one machine, but not a fast one, because every
// pass copies the parameters and one process drives all devices. One rank per device (with the
// engine or any other style) is faster, and works on several machines.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/parallel/data_parallel.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace dslaunch {

// Runs a module on several devices. M is a torch::nn::Cloneable whose forward takes and returns a
// tensor. Used by one thread. Passes on the exceptions of LibTorch and M::forward.
template <class M>
class DataParallel {
 public:
  // Throws std::invalid_argument if `devices` is empty. `devices` may contain a device several
  // times. The module stays on its device. `output_device` is the device of outputs, by default the
  // first of `devices`. `dim` is the batch dimension of input and output.
  DataParallel(std::shared_ptr<M> module, std::vector<at::Device> devices,
               std::optional<at::Device> output_device = std::nullopt, int64_t dim = 0)
      : module_(std::move(module)),
        devices_(std::move(devices)),
        output_device_(output_device),
        dim_(dim) {
    if (devices_.empty()) throw std::invalid_argument("DataParallel needs at least one device");
  }

  // Runs the forward pass. A batch with fewer samples than devices uses fewer devices. Afterwards
  // the buffers of the module have the values of the first copy's buffers, as in PyTorch.
  at::Tensor Forward(const at::Tensor& input) {
    const auto count = static_cast<int64_t>(devices_.size());
    const at::Device output_device = output_device_.value_or(devices_[0]);
    std::vector<at::Tensor> inputs = input.chunk(count, dim_);
    const std::vector<at::Device> devices(devices_.begin(),
                                          devices_.begin() + static_cast<ptrdiff_t>(inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = inputs[i].to(devices[i]);
    auto replicas = torch::nn::parallel::replicate(module_, devices);
    std::vector<at::Tensor> outputs =
        torch::nn::parallel::parallel_apply(replicas, inputs, std::optional(devices));
    for (at::Tensor& output : outputs) {
      output = output.to(output_device);
      // The threads of parallel_apply record gradients even if gradients are disabled in this
      // thread, so the output is detached here.
      if (!at::GradMode::is_enabled()) output = output.detach();
    }
    CopyBuffers(*replicas[0]);
    return at::cat(outputs, dim_);
  }

  M& module() const { return *module_; }

 private:
  void CopyBuffers(const M& replica) {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> own = module_->buffers(), other = replica.buffers();
    for (size_t i = 0; i < own.size(); ++i) own[i].copy_(other[i]);
  }

  const std::shared_ptr<M> module_;
  const std::vector<at::Device> devices_;
  const std::optional<at::Device> output_device_;
  const int64_t dim_;
};

}  // namespace dslaunch
