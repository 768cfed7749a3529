// A 784-128-10 network on Fashion-MNIST, written as for TF-Replicator: what a replica reads, and a
// step of one replica. The same program is one replica (./replicator_mlp), four processes here
// (./replicator_mlp 4, dslaunch --num_gpus 4 ./replicator_mlp) or those of many hosts.
#include <dslaunch/dslaunch.h>
#include <dslaunch/replicator.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>

constexpr int64_t kGlobalBatch = 240, kSteps = 250;

struct Mlp : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(28 * 28, 128));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(128, 10));
  at::Tensor forward(at::Tensor x) { return fc2(at::relu(fc1(x.flatten(1)))); }
};

void Train() {
  const auto group = dslaunch::InitProcessGroup();
  const auto data = dslaunch::ReadMnist("/usr/share/datasets/fashion-mnist");
  const dslaunch::Replicator replicator(group);
  at::manual_seed(0);
  Mlp model;
  auto optimizer = replicator.WrapOptimizer(std::make_shared<torch::optim::SGD>(
      model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)));
  const at::Tensor order = at::randperm(data.inputs.size(0));

  const auto input_fn = [&](const dslaunch::InputContext& input) {
    const at::Tensor mine = order.slice(0, input.replica_id(), order.numel(), input.num_replicas());
    return [batches = mine.split(input.PerReplicaBatchSize(kGlobalBatch)),
            next = size_t{0}]() mutable -> std::optional<at::Tensor> {
      return next < batches.size() ? std::optional(batches[next++]) : std::nullopt;
    };
  };
  const auto step_fn = [&](const dslaunch::ReplicaContext& replica, const at::Tensor& batch) {
    optimizer.ZeroGrad();
    at::Tensor loss = dslaunch::CrossEntropy(model.forward(data.inputs.index({batch})),
                                             data.targets.index({batch}));
    loss.backward();
    optimizer.Step();
    return replica.AllReduce(loss.detach(), dslaunch::ReduceOp::kAverage);
  };
  const at::Tensor losses = replicator.Run<at::Tensor>(input_fn, step_fn, kSteps);
  for (int64_t step = 50; group.rank() == 0 && step <= losses.size(0); step += 50) {
    std::printf("step %ld: loss %.3f\n", step, losses[step - 1][0].item<double>());
  }
}

int main(int argc, char** argv) {
  return dslaunch::Main(
      [&] { argc == 1 ? Train() : dslaunch::Spawn(std::stoi(argv[1]), [](int) { Train(); }); });
}
