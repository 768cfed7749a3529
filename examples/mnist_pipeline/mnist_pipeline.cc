// A 784-128-10 network on Fashion-MNIST, as a pipeline of two stages on separate ranks:
// dslaunch --num_gpus 2 ./mnist_pipeline (or 4, for two replicas), or ./mnist_pipeline 2
#include <dslaunch/dslaunch.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

using dslaunch::LayerFunction;
using dslaunch::LayerSpec;
using torch::nn::Linear;

void Train() {
  const auto group = dslaunch::InitProcessGroup();
  const auto data = dslaunch::ReadMnist("/usr/share/datasets/fashion-mnist");
  at::manual_seed(0);  // the same weights for any number of stages, and the same order
  auto engine = dslaunch::InitializePipeline(
      R"({"train_batch_size": 240, "gradient_accumulation_steps": 4,
          "optimizer": {"type": "Adam"}})",
      dslaunch::PipelineModule({LayerSpec<Linear>(28 * 28, 128),
                                LayerFunction([](const at::Tensor& x) { return at::relu(x); }),
                                LayerSpec<Linear>(128, 10)},
                               /*num_stages=*/2),
      group);
  const at::Tensor order = at::randperm(data.inputs.size(0));
  const at::Tensor mine = order.slice(0, engine.replica(), order.numel(), engine.num_replicas());
  const auto batches = mine.split(engine.core().micro_batch_size());
  size_t next = 0;
  while (next < batches.size()) {
    const size_t first = next;
    const double loss = engine.TrainBatch([&]() -> dslaunch::MicroBatch {
      const at::Tensor& batch = batches.at(next++);
      return {{data.inputs.index({batch}).flatten(1)}, {data.targets.index({batch})}};
    });
    next = first + static_cast<size_t>(engine.core().accumulation_steps());
    if (engine.core().global_steps() % 50 == 0 && group.rank() == 0)
      std::printf("step %ld: loss %.3f\n", engine.core().global_steps(), loss);
  }
}

int main(int argc, char** argv) try {
  argc == 1 ? Train() : dslaunch::Spawn(std::stoi(argv[1]), [](int) { Train(); });
} catch (const dslaunch::TrainError& error) {
  std::fprintf(stderr, "mnist_pipeline: %s\n", error.what());
  return error.exit_code();
}
