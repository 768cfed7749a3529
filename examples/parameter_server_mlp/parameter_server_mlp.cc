// A 784-128-10 network on Fashion-MNIST with a parameter server: rank 0 gets the gradients of all
// ranks and has the optimizer, and the others get the weights from it.
//   dslaunch -np 2 ./parameter_server_mlp
// Only the configuration differs from a training whose ranks exchange gradients among themselves.
#include <dslaunch/dslaunch.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

struct Mlp : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(28 * 28, 128));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(128, 10));
  at::Tensor forward(at::Tensor x) { return fc2(at::relu(fc1(x.flatten(1)))); }
};

void Train() {
  const auto group = dslaunch::InitProcessGroup();
  const auto data = dslaunch::ReadMnist("/usr/share/datasets/fashion-mnist");
  auto engine = dslaunch::Initialize(
      R"({"train_batch_size": 240, "optimizer": {"type": "Adam"},
          "parallel": {"mode": "parameter_server", "servers": 1}})",
      std::make_shared<Mlp>(), group);
  engine.SetTrain();
  at::manual_seed(0);  // the same order on all ranks; each takes every world_size-th sample
  const at::Tensor order = at::randperm(data.inputs.size(0));
  const at::Tensor mine = order.slice(0, group.rank(), order.numel(), group.world_size());
  for (const at::Tensor& batch : mine.split(engine.core().micro_batch_size())) {
    at::Tensor loss =
        engine.Loss(engine.Forward(data.inputs.index({batch})), data.targets.index({batch}));
    engine.Backward(loss);
    if (!engine.Step() || engine.global_steps() % 50 != 0) continue;
    group.AllReduce(loss.detach_(), dslaunch::ReduceOp::kAverage);
    if (group.rank() == 0)
      std::printf("step %ld: loss %.3f\n", engine.global_steps(), loss.item<double>());
  }
}

int main() { return dslaunch::Main(Train); }
