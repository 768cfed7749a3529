#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/base/train_error.h"
#include "trainer/families/cnn/cnn_config.h"
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

TEST(MakeModelTest, RefusesSamplesOfWrongShape) {
  EXPECT_EQ(Refusal(CnnConfig{}, {1, 10, 10}), "");
  EXPECT_THAT(Refusal(CnnConfig{}, {1, 28, 9}), HasSubstr("10 x 10 pixels; these are 28 x 9"));
  EXPECT_THAT(Refusal(CnnConfig{}, {784}), HasSubstr("cnn takes images"));
  EXPECT_THAT(Refusal(Resnet18Config{}, {784}), HasSubstr("resnet18 takes images"));
  EXPECT_THAT(Refusal(kGpt2, {3, 32, 32}), HasSubstr("gpt2 takes text"));
  EXPECT_EQ(Refusal(kGpt2, {8}), "");
  EXPECT_THAT(Refusal(kGpt2, {9}), HasSubstr("9 tokens, more than model.n_positions, 8"));
  Gpt2Config uneven = kGpt2;
  uneven.n_head = 5;
  EXPECT_THAT(Refusal(uneven, {8}), HasSubstr("n_embd is 12"));
}

TEST(MakeModelTest, MlpAcceptsAnyShape) {
  const auto model = MakeModel(MlpConfig{4, 3}, {7});
  EXPECT_EQ(model->forward(at::rand({5, 7})).sizes(), (std::vector<int64_t>{5, 3}));
}

TEST(MakeModelTest, Gpt2RefusesFloatsAndLongSequences) {
  const auto model = MakeModel(kGpt2, {8});
  EXPECT_EQ(model->forward(at::zeros({2, 5}, at::kLong)).sizes(), (std::vector<int64_t>{2, 5, 11}));
  EXPECT_THROW(model->forward(at::zeros({2, 9}, at::kLong)), TrainError);
  EXPECT_THROW(model->forward(at::zeros({2, 5})), TrainError) << "numbers of a CSV file";
}

TEST(MakeModelTest, Gpt2IgnoresLaterTokens) {
  const auto model = MakeModel(kGpt2, {8});
  model->eval();
  const at::Tensor tokens = at::randint(11, {1, 8}, at::kLong);
  at::Tensor changed = tokens.clone();
  changed[0][5] = (changed[0][5] + 1) % 11;
  const at::Tensor difference =
      (model->forward(tokens) - model->forward(changed)).abs().amax({0, 2});
  EXPECT_EQ(difference.slice(0, 0, 5).max().item<float>(), 0);
  EXPECT_GT(difference.slice(0, 5).min().item<float>(), 0);
}

}  // namespace
}  // namespace dslaunch::modules_test
