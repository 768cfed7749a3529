// Tests that SavedWeights gives the ranks the weights of a checkpoint, and later restores their own
// weights.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <mutex>

#include "dslaunch/engine.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"

namespace dslaunch::saved_weights_test {
namespace {

constexpr int64_t kSteps = 4;

// A model with a buffer that each rank fills from its own samples.
struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    if (is_training()) seen.copy_(x.detach().mean(0));
    return linear(x + seen);
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(5, 3));
  at::Tensor seen = register_buffer("seen", at::zeros({5}));
};

std::shared_ptr<Net> Make() {
  static std::mutex mutex;  // needed because ranks are threads and share the default generator
  const std::lock_guard lock(mutex);
  at::manual_seed(3);
  return std::make_shared<Net>();
}

std::string Config(const std::string& more) {
  return R"({"train_micro_batch_size_per_gpu": 4, )" + more + "}";
}

std::map<std::string, at::Tensor> Tensors(const Net& net) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : net.named_parameters())
    tensors[item.key()] = item.value().detach().clone();
  for (const auto& item : net.named_buffers()) tensors[item.key()] = item.value().clone();
  return tensors;
}

void ExpectEqual(const std::map<std::string, at::Tensor>& got,
                 const std::map<std::string, at::Tensor>& wanted, const std::string& what) {
  for (const auto& [name, tensor] : wanted) {
    EXPECT_TRUE(at::equal(got.at(name), tensor)) << what << ": " << name;
  }
}

// Trains and, after each step, compares SavedWeights with a checkpoint that is saved and loaded.
// `keys`: additions to the configuration.
void CompareWithCheckpoints(const std::string& keys) {
  const TempDir dir;
  bool differed = false;
  const auto errors = RunRanks(2, [&](const ProcessGroup& group) {
    auto engine = Initialize(Config(keys), Make(), group);
    for (int64_t step = 1; step <= kSteps; ++step) {
      const at::Tensor x = at::arange(20, at::kFloat).sin().view({4, 5}) + (group.rank() + step);
      engine.SetTrain();
      engine.Backward(engine.Forward(x).to(at::kFloat).square().mean());
      engine.Step();
      const std::string tag = "step" + std::to_string(step);
      engine.SaveCheckpoint(dir.path(), tag);
      const auto own = Tensors(engine.model());
      std::map<std::string, at::Tensor> shown;
      {
        const SavedWeights saved(engine.core());
        shown = Tensors(engine.model());
      }
      ExpectEqual(Tensors(engine.model()), own, "a rank's own come back");
      auto loaded = Initialize(Config(keys), Make(), group);
      loaded.LoadCheckpoint(dir.path(), tag, {.load_module_only = true});
      ExpectEqual(shown, Tensors(loaded.model()), keys + ", " + tag);
      if (group.rank() == 1) differed |= !at::equal(own.at("seen"), shown.at("seen"));
    }
  });
  for (const std::exception_ptr& error : errors) EXPECT_EQ(TextOf(error), "");
  EXPECT_TRUE(differed) << keys << ": else there is nothing to show";
}

TEST(SavedWeightsTest, EqualWeightsOfSavedCheckpoint) {
  const std::string sgd = R"("optimizer": {"type": "SGD", "params": {"lr": 0.1}})";
  const std::string own = R"(, "broadcast_buffers": false)";
  CompareWithCheckpoints(sgd + R"(, "parallel": {"mode": "local_sgd", "inner_steps": 3})");
  CompareWithCheckpoints(
      sgd + R"(, "parallel": {"mode": "local_sgd", "inner_steps": 3}, "bf16": {"enabled": true})" +
      own);
  CompareWithCheckpoints(sgd + R"(, "parallel": {"mode": "diloco", "inner_steps": 2})" + own);
  CompareWithCheckpoints(
      R"("optimizer": {"type": "ZeroOneAdam", "params": {"lr": 0.01, "var_freeze_step": 1, "local_step_scaler": 1, "local_step_clipper": 4}})" +
      own);
  for (const char* stage : {"0", "1", "2"}) {
    CompareWithCheckpoints(sgd + R"(, "zero_optimization": {"stage": )" + stage + "}" + own);
  }
}

}  // namespace
}  // namespace dslaunch::saved_weights_test
