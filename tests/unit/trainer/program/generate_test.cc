#include "trainer/program/generate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "trainer/base/train_error.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/families/make_model.h"

namespace dslaunch::generate_test {
namespace {

using testing::ElementsAre;
using testing::Key;
using testing::UnorderedElementsAre;

// The likeliest next token is the last one plus 1; the logits of 10 tokens differ by 1 each.
at::Tensor Successor(const at::Tensor& tokens) {
  const at::Tensor distance = (at::arange(10).view({1, 1, 10}) - tokens.unsqueeze(2) - 1) % 10;
  return -distance.remainder(10).to(at::kFloat);
}

TEST(GenerateTest, ZeroTemperatureTakesLikeliestToken) {
  EXPECT_THAT(Generate(Successor, {3, 7}, {.max_new_tokens = 4, .temperature = 0}),
              ElementsAre(8, 9, 0, 1));
  EXPECT_THAT(Generate(Successor, {3}, {.max_new_tokens = 3, .temperature = 1, .top_k = 1}),
              ElementsAre(4, 5, 6));
  EXPECT_THAT(Generate(Successor, {3}, {.max_new_tokens = 0}), ElementsAre());
}

TEST(GenerateTest, SameSeedGivesSameTokens) {
  const auto sample = [](uint64_t seed) {
    return Generate(Successor, {0}, {.max_new_tokens = 50, .temperature = 3, .seed = seed});
  };
  EXPECT_EQ(sample(1), sample(1));
  EXPECT_NE(sample(1), sample(2));
}

// Frequencies against the softmax of logits 0, -1, -2, ... over the temperature.
TEST(GenerateTest, TemperatureAndTopKSetProbabilities) {
  const auto always_after_nine = [](const at::Tensor& tokens) {
    return Successor(at::full_like(tokens, 9));
  };
  constexpr int kDraws = 4000;
  std::map<int64_t, double> share;
  for (const int64_t token : Generate(
           always_after_nine, {9},
           {.max_new_tokens = kDraws, .temperature = 2, .top_k = 3, .seed = 5, .n_positions = 1})) {
    share[token] += 1.0 / kDraws;
  }
  EXPECT_THAT(share, UnorderedElementsAre(Key(0), Key(1), Key(2)));
  const double sum = 1 + std::exp(-0.5) + std::exp(-1.0);
  for (const auto& [token, part] : share) {
    EXPECT_NEAR(part, std::exp(-0.5 * static_cast<double>(token)) / sum, 0.03) << token;
  }
}

TEST(GenerateTest, PassesLastPositionsToModel) {
  std::vector<std::vector<int64_t>> shown;
  const auto record = [&](const at::Tensor& tokens) {
    EXPECT_EQ(tokens.size(0), 1);
    EXPECT_FALSE(at::GradMode::is_enabled());
    shown.emplace_back(tokens.const_data_ptr<int64_t>(),
                       tokens.const_data_ptr<int64_t>() + tokens.numel());
    return Successor(tokens);
  };
  Generate(record, {1, 2}, {.max_new_tokens = 3, .temperature = 0, .n_positions = 3});
  EXPECT_THAT(shown, ElementsAre(ElementsAre(1, 2), ElementsAre(1, 2, 3), ElementsAre(2, 3, 4)));
}

TEST(GenerateTest, RefusesEmptyPromptAndNanLogits) {
  EXPECT_THROW(Generate(Successor, {}, {}), TrainError);
  const auto broken = [](const at::Tensor&) {
    return at::full({1, 1, 4}, std::numeric_limits<float>::quiet_NaN());
  };
  EXPECT_THROW(Generate(broken, {1}, {}), TrainError);
}

TEST(GenerateTest, GeneratesWithoutDropoutInTrainingMode) {
  const auto model = MakeModel(Gpt2Config{.vocab_size = 11,
                                          .n_positions = 4,
                                          .n_embd = 12,
                                          .n_layer = 1,
                                          .n_head = 3,
                                          .n_inner = {},
                                          .embd_pdrop = 0.9},
                               {4});
  const GenerateOptions greedy{.max_new_tokens = 12, .temperature = 0, .n_positions = 4};
  model->train();
  const std::vector<int64_t> tokens = Generate(*model, {1, 2, 3}, greedy);
  EXPECT_TRUE(model->is_training());
  EXPECT_EQ(tokens.size(), 12);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Generate(*model, {1, 2, 3}, greedy), tokens);
}

}  // namespace
}  // namespace dslaunch::generate_test
