// Runs one rank of a job with more ranks than any machine here can hold. The other ranks are
// simulated (tests/support/echo_backend.h). Everything else is the same as in a rank of `dslaunch
// train`.
//
//   dslaunch-one-rank zero RECIPE.json RANK RANKS      the first optimizer step of a recipe
//   dslaunch-one-rank replicator RANKS GLOBAL_BATCH    a replica's step with TF-Replicator
//
// Prints one line of JSON.
#include <ATen/ATen.h>
#include <malloc.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "dslaunch/engine.h"
#include "dslaunch/replicator.h"
#include "tests/support/echo_backend.h"
#include "trainer/comm/group_with_backend.h"
#include "trainer/data/dataset.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/prepare.h"
#include "trainer/train/report.h"

namespace dslaunch {
namespace {

void Zero(const std::string& file, int rank, int ranks) {
  // The system gets large temporary tensors back at once. In the heap, small remaining parts would
  // occupy their space, and the next tensor would not fit.
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  const Recipe recipe = ParseRecipe(text.str(), file, ranks);
  const DataSplits data = OpenData(recipe.data, recipe.model.needs());
  const auto backend = c10::make_intrusive<EchoBackend>(rank, ranks);
  const ProcessGroup group = GroupWithBackend(rank, ranks, backend);
  const ActivationMeter tensors;
  const std::unique_ptr<TrainingModel> model =
      PrepareTrainingModel(recipe, OneSample(*data.train), group, /*checkpointer=*/nullptr);
  model->SetTrain(true);
  StepTimes times;
  const int64_t before = backend->sent_bytes();
  const at::Tensor loss =
      model->Train({.seed = recipe.run.seed, .number = 1, .times = &times}, [&] {
        std::vector<int64_t> samples(static_cast<size_t>(recipe.engine.batch.micro_batch_size));
        for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int64_t>(i);
        return data.train->Fetch(samples);
      });
  const nlohmann::ordered_json result = {
      {"parameters", model->total_parameters()}, {"loss", loss.item<double>()},
      {"steps", model->core().global_steps()},   {"grad_norm", model->core().grad_norm()},
      {"tensors", tensors.peak_bytes()},         {"peak_rss", PeakRssBytes()},
      {"sent", backend->sent_bytes() - before}};
  std::printf("%s\n", result.dump().c_str());
}

struct Mlp : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(64, 32));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(32, 10));
  at::Tensor forward(const at::Tensor& x) { return fc2(at::relu(fc1(x))); }
};

// Runs the same step twice: in a replica, and in plain PyTorch on this replica's part of the batch.
void OneReplica(int ranks, int64_t global_batch) {
  using Sgd = torch::optim::SGD;
  const ProcessGroup group = GroupWithBackend(0, ranks, c10::make_intrusive<EchoBackend>(0, ranks));
  const Replicator replicator(group);
  at::manual_seed(1);
  Mlp model, alone;
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < model.parameters().size(); ++i) {
      alone.parameters()[i].copy_(model.parameters()[i]);
    }
  }
  const torch::optim::SGDOptions options = torch::optim::SGDOptions(0.1).momentum(0.9);
  auto optimizer = replicator.WrapOptimizer(std::make_shared<Sgd>(model.parameters(), options));
  Sgd plain(alone.parameters(), options);
  int64_t taken = 0;
  const auto batch_of = [](int64_t samples) {
    return std::pair(at::arange(samples * 64, at::kFloat).view({samples, 64}).sin(),
                     at::arange(samples, at::kLong) % 10);
  };
  using Batch = std::pair<at::Tensor, at::Tensor>;
  const auto input_fn = [&](const InputContext& input) {
    taken = input.PerReplicaBatchSize(global_batch);
    return [&]() -> std::optional<Batch> { return batch_of(taken); };
  };
  const auto step_fn = [&](const ReplicaContext& replica, const Batch& batch) {
    optimizer.ZeroGrad();
    const at::Tensor loss = CrossEntropy(model.forward(batch.first), batch.second);
    loss.backward();
    optimizer.Step();
    return replica.AllReduce(loss.detach(), ReduceOp::kAverage);
  };
  const at::Tensor losses = replicator.Run<Batch>(input_fn, step_fn, /*steps=*/1);
  const auto [inputs, targets] = batch_of(taken);
  const at::Tensor loss = CrossEntropy(alone.forward(inputs), targets);
  loss.backward();
  plain.step();
  double apart = 0;
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    apart =
        std::max(apart, (model.parameters()[i] - alone.parameters()[i]).abs().max().item<double>());
  }
  const nlohmann::ordered_json result = {{"replicas", replicator.num_replicas()},
                                         {"samples", taken},
                                         {"losses", losses.size(1)},
                                         {"loss", losses[0][0].item<double>()},
                                         {"loss_alone", loss.item<double>()},
                                         {"weights_apart", apart}};
  std::printf("%s\n", result.dump().c_str());
}

}  // namespace
}  // namespace dslaunch

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "zero" && argc == 5) {
    dslaunch::Zero(argv[2], std::stoi(argv[3]), std::stoi(argv[4]));
    return 0;
  }
  if (mode == "replicator" && argc == 4) {
    dslaunch::OneReplica(std::stoi(argv[2]), std::stoll(argv[3]));
    return 0;
  }
  std::fprintf(
      stderr,
      "usage: dslaunch-one-rank zero RECIPE.json RANK RANKS | replicator RANKS GLOBAL_BATCH\n");
  return 64;
}
