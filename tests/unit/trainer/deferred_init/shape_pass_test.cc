#include "trainer/deferred_init/shape_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "dslaunch/deferred_init.h"
#include "tests/unit/trainer/expect_refused.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/families/decoder/decoder_config.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/families/make_model.h"

namespace dslaunch::shape_pass_test {
namespace {

using testing::HasSubstr;

ModelConfig SmallGpt2() {
  Gpt2Config config;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 64;
  config.n_positions = 32;
  config.vocab_size = 300;
  return config;
}

ModelConfig SmallDecoder() {
  DecoderConfig config;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.max_position_embeddings = 32;
  config.vocab_size = 300;
  return config;
}

struct Bytes {
  int64_t activations = 0, peak = 0;
};

// Runs a forward and a backward pass whose gradients accumulate in .grad().
template <class Meter>
Bytes Train(Model& model, const Meter& meter, int64_t samples) {
  const at::Tensor inputs = at::zeros({samples, 32}, at::kLong);
  const at::Tensor targets = at::zeros({samples, 32}, at::kLong);
  const int64_t before = meter.live_bytes();
  const at::Tensor loss = model.Loss(model.forward(inputs), targets);
  const int64_t activations = meter.live_bytes() - before;
  loss.backward();
  return {activations, meter.peak_bytes() - before};
}

void ExpectSameCounts(const ModelConfig& config, int64_t samples) {
  SCOPED_TRACE(std::string(config.type()) + ", samples: " + std::to_string(samples));
  Bytes real, shaped;
  {
    const std::shared_ptr<Model> model = MakeModel(config, {32});
    const ActivationMeter meter;
    real = Train(*model, meter, samples);
  }
  std::shared_ptr<Model> model;
  InitRecording recording = DeferInit(1, [&] { model = MakeModel(config, {32}); });
  {
    const ShapePass pass;
    shaped = Train(*model, pass, samples);
  }
  const auto within = [](int64_t a, int64_t b) {
    return std::abs(static_cast<double>(a - b)) < 0.02 * static_cast<double>(b);
  };
  EXPECT_TRUE(within(shaped.activations, real.activations))
      << shaped.activations << " " << real.activations;
  EXPECT_TRUE(within(shaped.peak, real.peak)) << shaped.peak << " " << real.peak;
}

TEST(ShapePassTest, CountsAllocationsOfPass) {
  for (const ModelConfig& config : {SmallGpt2(), SmallDecoder()}) {
    for (const int64_t samples : {1, 5}) ExpectSameCounts(config, samples);
  }
}

// Only shapes may be computed: on zeros, the attention alone would take minutes.
TEST(ShapePassTest, ComputesNoAttention) {
  const ShapePass pass;
  const at::Tensor query = at::empty({1, 64, 65536, 128}).requires_grad_();
  const at::Tensor key = at::empty({1, 8, 65536, 128}).requires_grad_();
  const at::Tensor mixed =
      at::scaled_dot_product_attention(query, key, key, {}, 0, /*is_causal=*/true, std::nullopt,
                                       /*enable_gqa=*/true);
  EXPECT_EQ(mixed.sizes(), query.sizes());
  mixed.sum().backward();
  EXPECT_EQ(key.grad().sizes(), key.sizes());
}

TEST(ShapePassTest, AllocatesNoMemory) {
  ShapePass pass;
  const at::Tensor weight = at::empty({int64_t{1} << 22, int64_t{1} << 22});
  EXPECT_EQ(pass.live_bytes(), int64_t{1} << 46);
  at::Tensor x = at::ones({2, int64_t{1} << 22}).matmul(weight);
  EXPECT_EQ(x.sizes(), (std::vector<int64_t>{2, int64_t{1} << 22}));
  x.add_(1);
  EXPECT_EQ(pass.live_bytes(), (int64_t{1} << 46) + (int64_t{1} << 25));
  x.reset();
  pass.ResetPeak();
  EXPECT_EQ(pass.peak_bytes(), int64_t{1} << 46);
}

TEST(ShapePassTest, DoesNotChangeGenerator) {
  at::manual_seed(3);
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  at::Tensor kept;
  {
    const ShapePass pass;
    kept = std::get<0>(at::native_dropout(at::ones({100}), 0.5, true));
  }
  EXPECT_TRUE(at::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
  EXPECT_EQ(at::ones({3}).sum().item<double>(), 3) << "computed again";
}

TEST(ShapePassTest, RejectsOperationsThatReadValues) {
  const ShapePass pass;
  ExpectRefused([] { at::ones({3}).sum().item<double>(); }, ExitCode::kBadInput,
                HasSubstr("aten::_local_scalar_dense"));
  ExpectRefused([] { at::nonzero(at::ones({3})); }, ExitCode::kBadInput, HasSubstr("nonzero"));
}

}  // namespace
}  // namespace dslaunch::shape_pass_test
