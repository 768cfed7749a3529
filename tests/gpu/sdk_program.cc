// Trains a small network with the SDK on numbers derived from the seed: sdk_program DEVICE
// whole|pipeline|early RANKS.
// Rank 0 prints the loss of each step. With RANKS 0, a launcher has started this program.
#include <dslaunch/dslaunch.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <string>

namespace {

using dslaunch::LayerFunction;
using dslaunch::LayerSpec;
using torch::nn::Linear;

constexpr int kSteps = 6;
constexpr int64_t kSamples = 8, kIn = 12, kOut = 5;

struct Mlp : torch::nn::Module {
  Linear fc1 = register_module("fc1", Linear(kIn, 32));
  Linear fc2 = register_module("fc2", Linear(32, kOut));
  at::Tensor forward(const at::Tensor& x) { return fc2(at::relu(fc1(x))); }
};

void Print(int step, double loss, int rank) {
  if (rank == 0) std::printf("%d %.9g\n", step, loss);
}

void TrainWhole(const dslaunch::ProcessGroup& group) {
  at::manual_seed(1);
  auto engine = dslaunch::Initialize(
      R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
          "optimizer": {"type": "Adam", "params": {"lr": 0.01}}})",
      std::make_shared<Mlp>(), group);
  engine.SetTrain();
  const at::Tensor inputs = at::rand({kSamples, kIn}).to(group.device());
  const at::Tensor targets = (at::arange(kSamples) % kOut).to(group.device());
  const int64_t part = kSamples / group.world_size(), first = part * group.rank();
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor loss =
        engine.Loss(engine.Forward(inputs.narrow(0, first, part)), targets.narrow(0, first, part));
    engine.Backward(loss);
    engine.Step();
    at::Tensor mean = loss.detach().clone();
    group.AllReduce(mean, dslaunch::ReduceOp::kAverage);
    Print(step, mean.item<double>(), group.rank());
  }
}

// Trains a pipeline. The source returns CPU tensors, which the engine moves.
void TrainPipeline(const dslaunch::ProcessGroup& group) {
  at::manual_seed(1);
  auto engine = dslaunch::InitializePipeline(
      R"({"train_batch_size": 8, "gradient_accumulation_steps": 4,
          "pipeline": {"partition": "parameters"}, "optimizer": {"type": "Adam", "params": {"lr": 0.01}}})",
      dslaunch::PipelineModule({LayerSpec<Linear>(kIn, 32), LayerFunction([](const at::Tensor& x) {
                                  return at::dropout(x, 0.0, true);
                                }),
                                LayerSpec<Linear>(32, kOut)},
                               /*num_stages=*/group.world_size()),
      group);
  const at::Tensor inputs = at::rand({kSamples, kIn});
  const at::Tensor targets = at::arange(kSamples) % kOut;
  for (int step = 0; step < kSteps; ++step) {
    int64_t next = 0;
    const double loss = engine.TrainBatch([&]() -> dslaunch::MicroBatch {
      const int64_t first = 2 * next++;
      return {{inputs.narrow(0, first, 2)}, {targets.narrow(0, first, 2)}};
    });
    Print(step, loss, group.rank());
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string device = argv[1], mode = argv[2];
  const int ranks = std::stoi(argv[3]);
  const auto run = [&](int) {
    if (mode == "early") at::manual_seed(1);  // checks whether CUDA is available
    const auto group = dslaunch::InitProcessGroup({.device = device});
    if (group.rank() == 0) std::printf("on %s\n", group.device().str().c_str());
    if (mode == "pipeline") {
      TrainPipeline(group);
    } else {
      TrainWhole(group);
    }
  };
  return dslaunch::Main([&] {
    if (ranks == 0) return run(0);
    dslaunch::Spawn(ranks, run);
  });
}
