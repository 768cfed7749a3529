// Tests that engines that recompute activations train like engines that keep them. Ranks are
// forked, because threads would share one generator, so this test must not start threads outside of
// ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <map>

#include "dslaunch/engine.h"
#include "dslaunch/recompute.h"
#include "dslaunch/spawn.h"
#include "trainer/base/train_error.h"

namespace dslaunch::recompute_engine_test {
namespace {

namespace nn = torch::nn;

constexpr int64_t kVocabulary = 24, kWidth = 16, kTokens = 6, kRows = 2;
constexpr int kSteps = 4, kParts = 2;

struct BlockImpl : nn::Module {
  BlockImpl()
      : norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        qkv(register_module("qkv", nn::Linear(kWidth, 3 * kWidth))),
        proj(register_module("proj", nn::Linear(nn::LinearOptions(kWidth, kWidth).bias(false)))) {}
  at::Tensor forward(const at::Tensor& x) {
    std::vector<at::Tensor> heads;
    for (const at::Tensor& part : qkv(norm(x)).chunk(3, -1)) {
      heads.push_back(part.unflatten(-1, {2, -1}).transpose(1, 2));
    }
    const at::Tensor mixed = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.1,
                                                              /*is_causal=*/true);
    return x + at::dropout(proj(mixed.transpose(1, 2).flatten(2)), 0.2, is_training());
  }
  nn::LayerNorm norm;
  nn::Linear qkv, proj;
};
TORCH_MODULE(Block);

// The part of the model that is recomputed.
enum class Again { kNothing, kEveryTwo, kNested };

// A model whose head shares the embedding's weight and whose last block is used twice.
struct Net : nn::Module {
  explicit Net(Again what)
      : again(what), embedding(register_module("embedding", nn::Embedding(kVocabulary, kWidth))) {
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Block()));
    }
  }

  at::Tensor forward(const at::Tensor& tokens) {
    const auto first = [this](const at::Tensor& input) {
      return blocks[0](at::dropout(embedding(input), 0.1, is_training()));
    };
    const auto middle = [this](const at::Tensor& input) { return blocks[2](blocks[1](input)); };
    const auto last = [this](const at::Tensor& input) {
      return at::linear(blocks[2](input), embedding->weight);
    };
    if (again == Again::kNothing) return last(middle(first(tokens)));
    if (again == Again::kEveryTwo) return last(Recompute(middle, Recompute(first, tokens)));
    return Recompute(
        [first, middle, last](const at::Tensor& input) {
          return Recompute(last, Recompute(middle, Recompute(first, input)));
        },
        tokens);
  }

  Again again;
  nn::Embedding embedding;
  std::vector<Block> blocks;
};

struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> weights;
};

Outcome Train(const std::string& config, Again again, const ProcessGroup& group) {
  at::manual_seed(7);
  auto engine = Initialize(config, std::make_shared<Net>(again), group);
  Outcome outcome;
  for (int part = 0; part < kSteps * kParts; ++part) {
    const uint64_t seed = static_cast<uint64_t>(part * group.world_size() + group.rank());
    at::manual_seed(seed);
    const at::Tensor tokens = at::randint(kVocabulary, {kRows, kTokens + 1}, at::kLong);
    const at::Tensor loss =
        engine.Loss(engine.Forward(tokens.slice(1, 0, kTokens)), tokens.slice(1, 1));
    engine.Backward(loss);
    outcome.losses.push_back(loss.item<double>());
    if (engine.Step()) outcome.norms.push_back(engine.core().grad_norm());
  }
  const GatheredParameters gathered(engine.core(), engine.model().parameters());
  const at::NoGradGuard no_grad;
  for (const auto& item : engine.model().named_parameters()) {
    outcome.weights[item.key()] = item.value().to(at::kDouble).clone();
  }
  return outcome;
}

// Throws if `right` is false. Ranks must throw, because GoogleTest's expectations are lost in a
// forked process.
void Require(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

void RequireSame(const Outcome& got, const Outcome& wanted, double tolerance) {
  const auto far = [&](double a, double b) {
    return !(std::abs(a - b) <= tolerance * std::abs(b));
  };
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    Require(!far(got.losses[i], wanted.losses[i]),
            c10::str("loss ", i, ": ", got.losses[i], " instead of ", wanted.losses[i]));
  }
  Require(wanted.norms.size() == kSteps, "steps");
  for (size_t i = 0; i < wanted.norms.size(); ++i) {
    Require(!far(got.norms[i], wanted.norms[i]),
            c10::str("norm ", i, ": ", got.norms[i], " instead of ", wanted.norms[i]));
  }
  for (const auto& [name, weight] : wanted.weights) {
    const double off = (got.weights.at(name) - weight).abs().max().item<double>();
    Require(off <= tolerance, c10::str(name, " is off by ", off));
  }
}

struct Setting {
  std::string name, config;  // `config` is added to the common configuration
  double tolerance = 0;
};

class RecomputeEngineTest : public testing::TestWithParam<Setting> {};

TEST_P(RecomputeEngineTest, RecomputationDoesNotChangeTraining) {
  const Setting& setting = GetParam();
  const std::string config = c10::str(
      R"({"train_micro_batch_size_per_gpu": )", kRows, R"(, "gradient_accumulation_steps": )",
      kParts,
      R"(, "gradient_clipping": 0.5, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, )",
      setting.config, "}");
  try {
    Spawn(2, [&](int) {
      ProcessGroup group = InitProcessGroup();
      const Outcome wanted = Train(config, Again::kNothing, group);
      RequireSame(Train(config, Again::kEveryTwo, group), wanted, setting.tolerance);
      RequireSame(Train(config, Again::kNested, group), wanted, setting.tolerance);
      group.Finish();
    });
  } catch (const TrainError& error) {
    FAIL() << error.what();
  }
}

std::string Zero(int stage) {
  return c10::str(R"("zero_optimization": {"stage": )", stage,
                  R"(, "stage3_param_persistence_threshold": 20, "reduce_bucket_size": 600,
                      "stage3_max_live_parameters": 1500, "stage3_max_reuse_distance": 1000,
                      "stage3_prefetch_bucket_size": 800})");
}

INSTANTIATE_TEST_SUITE_P(
    Settings, RecomputeEngineTest,
    testing::Values(
        Setting{"reducer", Zero(0)},
        Setting{"bucket_sync", Zero(0) + R"(, "bf16": {"enabled": true})"},
        Setting{"autocast",
                Zero(0) + R"(, "torch_autocast": {"enabled": true, "dtype": "bfloat16"})"},
        Setting{"zero_1", Zero(1)}, Setting{"zero_2", Zero(2)}, Setting{"zero_3", Zero(3)},
        Setting{"zero_3_bf16", Zero(3) + R"(, "bf16": {"enabled": true})"},
        Setting{"zero_3_autocast",
                Zero(3) + R"(, "torch_autocast": {"enabled": true, "dtype": "bfloat16"})"}),
    [](const auto& setting) { return setting.param.name; });

}  // namespace
}  // namespace dslaunch::recompute_engine_test
