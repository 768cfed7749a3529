// A 784-128-10 network on Fashion-MNIST in one process with several devices: the machine's GPUs, or
// where it has none the CPU twice.
//   ./data_parallel_mlp
#include <dslaunch/data_parallel.h>
#include <dslaunch/dslaunch.h>
#include <torch/cuda.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>

// A copy of it is made on each device.
struct Mlp : torch::nn::Cloneable<Mlp> {
  Mlp() { reset(); }
  void reset() override {
    fc1 = register_module("fc1", torch::nn::Linear(28 * 28, 128));
    fc2 = register_module("fc2", torch::nn::Linear(128, 10));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(at::relu(fc1(x.flatten(1)))); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

void Train() {
  std::vector<at::Device> devices;
  for (size_t i = 0; i < torch::cuda::device_count(); ++i)
    devices.emplace_back(at::kCUDA, static_cast<int8_t>(i));
  if (devices.empty()) devices = {at::kCPU, at::kCPU};
  const auto data = dslaunch::ReadMnist("/usr/share/datasets/fashion-mnist");
  at::manual_seed(0);
  const auto model = std::make_shared<Mlp>();
  model->to(devices[0]);
  dslaunch::DataParallel parallel(model, devices);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  int64_t step = 0;
  for (const at::Tensor& batch : at::randperm(data.inputs.size(0)).split(240)) {
    sgd.zero_grad();
    at::Tensor loss = dslaunch::CrossEntropy(parallel.Forward(data.inputs.index({batch})),
                                             data.targets.index({batch}).to(devices[0]));
    loss.backward();
    sgd.step();
    if (++step % 50 == 0) std::printf("step %ld: loss %.3f\n", step, loss.item<double>());
  }
}

int main() { return dslaunch::Main(Train); }
