// A 784-128-10 network on Fashion-MNIST, written as for Horovod: dslaunch -np 2 ./horovod_mlp, or
// ./horovod_mlp 2, which starts its ranks itself. ./horovod_mlp is one rank.
#include <dslaunch/dslaunch.h>
#include <dslaunch/horovod.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>

namespace hvd = dslaunch::horovod;

struct Mlp : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(28 * 28, 128));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(128, 10));
  at::Tensor forward(at::Tensor x) { return fc2(at::relu(fc1(x.flatten(1)))); }
};

void Train() {
  hvd::Init();
  const auto data = dslaunch::ReadMnist("/usr/share/datasets/fashion-mnist");
  Mlp model;
  auto sgd = std::make_shared<torch::optim::SGD>(model.parameters(),
                                                 torch::optim::SGDOptions(0.05).momentum(0.9));
  hvd::DistributedOptimizer optimizer(sgd, hvd::NamedParameters(model));
  hvd::BroadcastParameters(hvd::NamedParameters(model), 0);
  hvd::BroadcastOptimizerState(*sgd, 0);
  at::manual_seed(0);  // the same order on all ranks; each takes every Size-th sample
  const at::Tensor order = at::randperm(data.inputs.size(0));
  const at::Tensor mine = order.slice(0, hvd::Rank(), order.numel(), hvd::Size());
  int64_t step = 0;
  for (const at::Tensor& batch : mine.split(240 / hvd::Size())) {
    optimizer.ZeroGrad();
    at::Tensor loss = dslaunch::CrossEntropy(model.forward(data.inputs.index({batch})),
                                             data.targets.index({batch}));
    loss.backward();
    optimizer.Step();
    if (++step % 50 != 0) continue;
    const double mean = hvd::Allreduce(loss.detach(), {.name = "loss"}).item<double>();
    if (hvd::Rank() == 0) std::printf("step %ld: loss %.3f\n", step, mean);
  }
  hvd::Join();  // the last batch may be short of one rank
  hvd::Shutdown();
}

int main(int argc, char** argv) {
  return dslaunch::Main(
      [&] { argc == 1 ? Train() : dslaunch::Spawn(std::stoi(argv[1]), [](int) { Train(); }); });
}
