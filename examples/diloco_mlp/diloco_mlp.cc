// A 784-128-10 network on Fashion-MNIST, whose ranks exchange weights once in 50 steps:
//   dslaunch --num_gpus 2 ./diloco_mlp diloco       what the weights have moved (DiLoCo)
//   dslaunch --num_gpus 2 ./diloco_mlp local_sgd    the weights (LocalSGD)
// Only the configuration differs from a training that exchanges gradients at each step.
#include <dslaunch/dslaunch.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

struct Mlp : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(28 * 28, 128));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(128, 10));
  at::Tensor forward(at::Tensor x) { return fc2(at::relu(fc1(x.flatten(1)))); }
};

void Train(const std::string& mode) {
  const auto group = dslaunch::InitProcessGroup();
  const auto data = dslaunch::ReadMnist("/usr/share/datasets/fashion-mnist");
  const at::Tensor inputs = data.inputs.to(group.device());  // a GPU where the rank has one
  const at::Tensor targets = data.targets.to(group.device());
  auto engine = dslaunch::Initialize(
      R"({"train_batch_size": 240, "optimizer": {"type": "Adam"}, "parallel": {"mode": ")" + mode +
          R"(", "inner_steps": 50}})",
      std::make_shared<Mlp>(), group);
  engine.SetTrain();
  at::manual_seed(0);  // the same order on all ranks; each takes every world_size-th sample
  const at::Tensor order = at::randperm(data.inputs.size(0));
  const at::Tensor mine = order.slice(0, group.rank(), order.numel(), group.world_size());
  for (const at::Tensor& batch : mine.split(engine.core().micro_batch_size())) {
    at::Tensor loss = engine.Loss(engine.Forward(inputs.index({batch})), targets.index({batch}));
    engine.Backward(loss);
    if (!engine.Step() || engine.global_steps() % 50 != 0) continue;
    group.AllReduce(loss.detach_(), dslaunch::ReduceOp::kAverage);
    if (group.rank() == 0)
      std::printf("step %ld: loss %.3f\n", engine.global_steps(), loss.item<double>());
  }
}

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: diloco_mlp diloco|local_sgd\n", stderr), 64;
  return dslaunch::Main([&] { Train(argv[1]); });
}
