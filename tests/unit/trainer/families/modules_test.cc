#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/base/train_error.h"
#include "trainer/families/cnn/cnn_config.h"
#include "trainer/families/decoder/decoder_config.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/families/make_model.h"
#include "trainer/families/mlp/mlp_config.h"
#include "trainer/families/resnet18/resnet18_config.h"

namespace dslaunch::modules_test {
namespace {

using testing::HasSubstr;

std::string Refusal(const ModelConfig& config, const std::vector<int64_t>& input_shape) {
  try {
    MakeModel(config, input_shape);
    return "";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
}

constexpr Gpt2Config kGpt2{
    .vocab_size = 11, .n_positions = 8, .n_embd = 12, .n_layer = 2, .n_head = 3, .n_inner = {}};

DecoderConfig SmallDecoder() {
  DecoderConfig config;
  config.model_type = DecoderConfig::Type::kMistral;
  config.vocab_size = 11;
  config.hidden_size = 12;
  config.intermediate_size = 20;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 3;
  config.num_key_value_heads = 1;
  config.max_position_embeddings = 8;
  config.sliding_window = 3;
  return config;
}

TEST(MakeModelTest, RefusesSamplesOfWrongShape) {
  EXPECT_EQ(Refusal(CnnConfig{}, {1, 10, 10}), "");
  EXPECT_THAT(Refusal(CnnConfig{}, {1, 28, 9}), HasSubstr("10 x 10 pixels; these are 28 x 9"));
  EXPECT_THAT(Refusal(CnnConfig{}, {784}), HasSubstr("cnn takes images"));
  EXPECT_THAT(Refusal(Resnet18Config{}, {784}), HasSubstr("resnet18 takes images"));
  EXPECT_THAT(Refusal(kGpt2, {3, 32, 32}), HasSubstr("gpt2 takes text"));
  EXPECT_EQ(Refusal(kGpt2, {8}), "");
  EXPECT_THAT(Refusal(kGpt2, {9}), HasSubstr("9 tokens, more than model.n_positions, 8"));
  EXPECT_THAT(Refusal(SmallDecoder(), {3, 32, 32}), HasSubstr("decoder takes text"));
  EXPECT_EQ(Refusal(SmallDecoder(), {8}), "");
  EXPECT_THAT(Refusal(SmallDecoder(), {9}), HasSubstr("more than model.max_position_embeddings"));
  Gpt2Config uneven = kGpt2;
  uneven.n_head = 5;
  EXPECT_THAT(Refusal(uneven, {8}), HasSubstr("n_embd is 12"));
}

TEST(MakeModelTest, MlpAcceptsAnyShape) {
  const auto model = MakeModel(MlpConfig{4, 3}, {7});
  EXPECT_EQ(model->forward(at::rand({5, 7})).sizes(), (std::vector<int64_t>{5, 3}));
}

TEST(MakeModelTest, LanguageModelsRefuseFloatsAndLongSequences) {
  for (const ModelConfig& config : {ModelConfig(kGpt2), ModelConfig(SmallDecoder())}) {
    SCOPED_TRACE(config.type());
    const auto model = MakeModel(config, {8});
    EXPECT_EQ(model->forward(at::zeros({2, 5}, at::kLong)).sizes(),
              (std::vector<int64_t>{2, 5, 11}));
    EXPECT_THROW(model->forward(at::zeros({2, 9}, at::kLong)), TrainError);
    EXPECT_THROW(model->forward(at::zeros({2, 5})), TrainError) << "numbers of a CSV file";
  }
}

TEST(MakeModelTest, LanguageModelsIgnoreLaterTokens) {
  for (const ModelConfig& config : {ModelConfig(kGpt2), ModelConfig(SmallDecoder())}) {
    SCOPED_TRACE(config.type());
    const auto model = MakeModel(config, {8});
    model->eval();
    const at::Tensor tokens = at::randint(11, {1, 8}, at::kLong);
    at::Tensor changed = tokens.clone();
    changed[0][5] = (changed[0][5] + 1) % 11;
    const at::Tensor difference =
        (model->forward(tokens) - model->forward(changed)).abs().amax({0, 2});
    EXPECT_EQ(difference.slice(0, 0, 5).max().item<float>(), 0);
    EXPECT_GT(difference.slice(0, 5).min().item<float>(), 0);
  }
}

TEST(MakeModelTest, DecoderDrawsMatricesInOrderAndZeroesPadding) {
  DecoderConfig config = SmallDecoder();
  config.model_type = DecoderConfig::Type::kQwen2;
  config.pad_token_id = 4;
  at::manual_seed(3);
  const auto model = MakeModel(config, {8});
  at::manual_seed(3);
  for (const auto& item : model->named_parameters()) {
    SCOPED_TRACE(item.key());
    const at::Tensor& parameter = item.value();
    at::Tensor wanted = at::empty(parameter.sizes());
    if (parameter.dim() == 2) {
      wanted.normal_(0, 0.02);
      if (item.key() == "model.embed_tokens.weight") wanted[4].zero_();
    } else {
      wanted.fill_(item.key().ends_with("bias") ? 0 : 1);
    }
    EXPECT_TRUE(parameter.equal(wanted));
  }
  model->forward(at::tensor(std::vector<int64_t>{1, 4, 4}).view({1, 3})).sum().backward();
  const at::Tensor gradient = model->named_parameters()["model.embed_tokens.weight"].grad();
  EXPECT_EQ(gradient[4].abs().max().item<float>(), 0);
  EXPECT_GT(gradient[1].abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace dslaunch::modules_test
