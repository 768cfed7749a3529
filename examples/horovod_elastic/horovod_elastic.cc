// A 784-128-10 network on Fashion-MNIST as an elastic job of Horovod's. It survives lost ranks:
//   dslaunch --num_gpus 2 --max_restarts 3 ./horovod_elastic
// and lost nodes, and uses nodes that come later:
//   dslaunch --nnodes 1:3 --on_join now --hostfile hosts ./horovod_elastic
#include <dslaunch/dslaunch.h>
#include <dslaunch/horovod_elastic.h>
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
  constexpr int64_t kEpochs = 2, kBatch = 120;  // samples of each rank
  hvd::Init();
  const auto data = dslaunch::ReadMnist("/usr/share/datasets/fashion-mnist");
  Mlp model;
  auto sgd = std::make_shared<torch::optim::SGD>(model.parameters(), 0.05 * hvd::Size());
  hvd::DistributedOptimizer optimizer(sgd, hvd::NamedParameters(model));
  hvd::elastic::ElasticSampler sampler(data.inputs.size(0));  // what is left of an epoch
  int64_t epoch = 0;
  hvd::elastic::State state(model, *sgd, {{"epoch", &epoch}, {"sampler", &sampler}});
  state.RegisterResetCallbacks(
      {[&] { sgd->param_groups()[0].options().set_lr(0.05 * hvd::Size()); }});
  hvd::elastic::Run(state, [&](hvd::elastic::State&) {
    for (; epoch < kEpochs; sampler.SetEpoch(++epoch)) {
      for (int64_t batch = 0; batch < sampler.Batches(kBatch); ++batch) {
        const at::Tensor mine = at::tensor(sampler.GetIndices(batch, kBatch));
        optimizer.ZeroGrad();
        at::Tensor loss = dslaunch::CrossEntropy(model.forward(data.inputs.index({mine})),
                                                 data.targets.index({mine}));
        loss.backward();
        optimizer.Step();
        sampler.RecordBatch(batch, kBatch);
        if ((batch + 1) % 50 != 0) continue;
        const double mean = hvd::Allreduce(loss.detach(), {.name = "loss"}).item<double>();
        if (hvd::Rank() == 0) std::printf("epoch %ld: loss %.3f\n", epoch, mean);
        state.Commit();
      }
    }
  });
  hvd::Shutdown();
}

int main() { return dslaunch::Main(Train); }
