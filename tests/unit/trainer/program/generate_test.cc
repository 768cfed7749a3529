#include "trainer/program/generate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "trainer/base/train_error.h"
#include "trainer/families/decoder/decoder_config.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/families/make_model.h"

namespace dslaunch::generate_test {
namespace {

using testing::ElementsAre;
using testing::Key;
using testing::UnorderedElementsAre;

// Returns logits of 10 tokens, for which the most likely next token is the last token plus 1. The
// logits differ by 1 each.
at::Tensor Successor(const at::Tensor& tokens) {
  const at::Tensor distance = (at::arange(10).view({1, 1, 10}) - tokens.unsqueeze(2) - 1) % 10;
  return -distance.remainder(10).to(at::kFloat);
}

std::vector<int64_t> Continue(const TokenModel& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options, uint64_t seed = 0,
                              int64_t n_positions = 1024) {
  NextLogits next_logits(model, {.n_positions = n_positions});
  return Generate(next_logits, {{prompt, seed}}, options)[0].tokens;
}

TEST(GenerateTest, ZeroTemperatureTakesLikeliestToken) {
  EXPECT_THAT(Continue(Successor, {3, 7}, {.max_new_tokens = 4, .temperature = 0}),
              ElementsAre(8, 9, 0, 1));
  EXPECT_THAT(Continue(Successor, {3}, {.max_new_tokens = 3, .temperature = 1, .top_k = 1}),
              ElementsAre(4, 5, 6));
  EXPECT_THAT(Continue(Successor, {3}, {.max_new_tokens = 0}), ElementsAre());
}

TEST(GenerateTest, SameSeedGivesSameTokens) {
  const auto sample = [](uint64_t seed) {
    return Continue(Successor, {0}, {.max_new_tokens = 50, .temperature = 3}, seed);
  };
  EXPECT_EQ(sample(1), sample(1));
  EXPECT_NE(sample(1), sample(2));
}

TEST(GenerateTest, BatchGivesSameTokensAsSinglePrompts) {
  const GenerateOptions options{.max_new_tokens = 20, .temperature = 3, .end_tokens = {9}};
  const std::vector<Prompt> prompts = {{{0}, 1}, {{1, 2, 3}, 2}, {{5, 6}, 1}, {{0}, 7}};
  NextLogits next_logits(Successor, {});
  const std::vector<Generated> together = Generate(next_logits, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    NextLogits alone(Successor, {});
    const Generated single = Generate(alone, {prompts[i]}, options)[0];
    EXPECT_EQ(together[i].tokens, single.tokens) << i;
    EXPECT_EQ(together[i].ended, single.ended) << i;
  }
}

TEST(GenerateTest, EndsAfterEndTokenAndOnRequest) {
  const GenerateOptions options{.max_new_tokens = 20,
                                .temperature = 0,
                                .end_tokens = {9, 4},
                                .ends = [](const std::vector<int64_t>& tokens, size_t given) {
                                  return given == 2 && tokens.size() == given + 2;
                                }};
  NextLogits next_logits(Successor, {});
  const std::vector<Generated> results =
      Generate(next_logits, {{{1}, 0}, {{0, 1}, 0}, {{6}, 0}}, options);
  EXPECT_THAT(results[0].tokens, ElementsAre(2, 3, 4));
  EXPECT_THAT(results[1].tokens, ElementsAre(2, 3));
  EXPECT_THAT(results[2].tokens, ElementsAre(7, 8, 9));
  for (const Generated& result : results) EXPECT_TRUE(result.ended);
}

// Compares frequencies of drawn tokens with the softmax of the logits 0, -1, -2, ... divided by the
// temperature.
TEST(GenerateTest, TemperatureAndTopKSetProbabilities) {
  const auto always_after_nine = [](const at::Tensor& tokens) {
    return Successor(at::full_like(tokens, 9));
  };
  constexpr int kDraws = 4000;
  std::map<int64_t, double> share;
  for (const int64_t token :
       Continue(always_after_nine, {9}, {.max_new_tokens = kDraws, .temperature = 2, .top_k = 3},
                /*seed=*/5, /*n_positions=*/1)) {
    share[token] += 1.0 / kDraws;
  }
  EXPECT_THAT(share, UnorderedElementsAre(Key(0), Key(1), Key(2)));
  const double sum = 1 + std::exp(-0.5) + std::exp(-1.0);
  for (const auto& [token, part] : share) {
    EXPECT_NEAR(part, std::exp(-0.5 * static_cast<double>(token)) / sum, 0.03) << token;
  }
}

std::map<int64_t, double> Probabilities(const std::vector<float>& logits,
                                        const GenerateOptions& options) {
  const NextTokens next = NextTokensOf(at::tensor(logits), options);
  std::map<int64_t, double> found;
  for (int64_t i = 0; i < next.probabilities.numel(); ++i) {
    const int64_t id = next.ids.defined() ? next.ids[i].item<int64_t>() : i;
    found[id] = next.probabilities[i].item<double>();
  }
  return found;
}

// The expected probabilities are what TemperatureLogitsWarper, TopKLogitsWarper and
// TopPLogitsWarper of transformers 5.23 make of these logits, after softmax.
TEST(NextTokensTest, MatchesTransformers) {
  const std::vector<float> logits = {0.5, -1, 2, 1.25, 0, 3, -2, 1};
  struct Case {
    GenerateOptions options;
    std::map<int64_t, double> expected;
  };
  const std::vector<Case> cases = {
      {{.temperature = 1, .top_k = 0, .top_p = 1},
       {{0, 0.04475945},
        {1, 0.00998718},
        {2, 0.20059794},
        {3, 0.09475575},
        {4, 0.02714798},
        {5, 0.54528171},
        {6, 0.00367408},
        {7, 0.07379586}}},
      {{.temperature = 2, .top_k = 0, .top_p = 1},
       {{0, 0.09187772},
        {1, 0.04339996},
        {2, 0.19450514},
        {3, 0.13368130},
        {4, 0.07155444},
        {5, 0.32068476},
        {6, 0.02632341},
        {7, 0.11797334}}},
      {{.temperature = 1, .top_k = 3, .top_p = 1},
       {{2, 0.23862655}, {3, 0.11271920}, {5, 0.64865422}}},
      {{.temperature = 1, .top_k = 0, .top_p = 0.7}, {{2, 0.26894143}, {5, 0.73105860}}},
      {{.temperature = 1, .top_k = 0, .top_p = 0.99},
       {{0, 0.04492451},
        {1, 0.01002401},
        {2, 0.20133768},
        {3, 0.09510518},
        {4, 0.02724809},
        {5, 0.54729253},
        {7, 0.07406799}}},
      {{.temperature = 0.5, .top_k = 0, .top_p = 0.9}, {{2, 0.11920291}, {5, 0.88079703}}},
      {{.temperature = 1.5, .top_k = 4, .top_p = 0.8},
       {{2, 0.28135213}, {3, 0.17064869}, {5, 0.54799914}}},
      {{.temperature = 1, .top_k = 5, .top_p = 0.05}, {{5, 1.00000000}}},
      {{.temperature = 1, .top_k = 2, .top_p = 0.99}, {{2, 0.26894143}, {5, 0.73105860}}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::Message() << one.options.temperature << " " << one.options.top_k << " "
                                    << one.options.top_p);
    const std::map<int64_t, double> found = Probabilities(logits, one.options);
    ASSERT_EQ(found.size(), one.expected.size());
    for (const auto& [id, probability] : one.expected) {
      ASSERT_TRUE(found.contains(id)) << id;
      EXPECT_NEAR(found.at(id), probability, 1e-6) << id;
    }
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
  Continue(record, {1, 2}, {.max_new_tokens = 3, .temperature = 0}, 0, /*n_positions=*/3);
  EXPECT_THAT(shown, ElementsAre(ElementsAre(1, 2), ElementsAre(1, 2, 3), ElementsAre(2, 3, 4)));
}

TEST(GenerateTest, RefusesEmptyPromptAndNanLogits) {
  EXPECT_THROW(Continue(Successor, {}, {}), TrainError);
  const auto broken = [](const at::Tensor&) {
    return at::full({1, 1, 4}, std::numeric_limits<float>::quiet_NaN());
  };
  EXPECT_THROW(Continue(broken, {1}, {}), TrainError);
}

// Expects the same logits after each token, with and without a cache, while the rows grow.
void ExpectSameLogitsWithCache(const ModelConfig& config, const TokenRows& beginnings,
                               int64_t passes) {
  at::manual_seed(4);
  const auto model = MakeModel(config, {config.needs().positions});
  model->eval();
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.add_(at::randn_like(parameter) / 5);
  }
  auto& caching = dynamic_cast<CachingModel&>(*model);
  int64_t most_tokens = 0;
  const TokenModel forward = [&](const at::Tensor& tokens) {
    most_tokens = tokens.size(1);
    return model->forward(tokens);
  };
  NextLogits cached(forward, {.n_positions = config.needs().positions,
                              .caching = &caching,
                              .capacity = config.needs().positions});
  NextLogits recomputed(forward, {.n_positions = config.needs().positions});
  TokenRows rows = beginnings;
  for (int64_t pass = 0; pass < passes; ++pass) {
    const at::Tensor expected = recomputed.After(rows);
    const at::Tensor logits = cached.After(rows);
    EXPECT_LE(most_tokens, pass == 0 ? config.needs().positions : 1);
    ASSERT_EQ(logits.sizes(), expected.sizes());
    EXPECT_LT((logits - expected).abs().max().item<double>(), 1e-5) << "pass " << pass;
    for (size_t row = 0; row < rows.size(); ++row) {
      rows[row].push_back((static_cast<int64_t>(row) * 3 + pass * 5) % 11);
    }
    if (pass != 2) continue;
    cached.KeepRows({2, 0});
    rows = {rows[2], rows[0]};
  }
}

TEST(KeyValueCacheTest, DecoderLogitsEqualRecomputedOnes) {
  for (const std::optional<int64_t> window : {std::optional<int64_t>(), {3}, {6}, {40}}) {
    for (const auto type : {RotaryConfig::Type::kDefault, RotaryConfig::Type::kLlama3}) {
      DecoderConfig config;
      config.model_type = DecoderConfig::Type::kMistral;
      config.vocab_size = 11;
      config.hidden_size = 16;
      config.intermediate_size = 20;
      config.num_hidden_layers = 2;
      config.num_attention_heads = 4;
      config.num_key_value_heads = 2;
      config.max_position_embeddings = 20;
      config.sliding_window = window;
      config.rotary.type = type;
      config.rotary.factor = 4;
      config.rotary.original_max_position_embeddings = 8;
      SCOPED_TRACE(window.value_or(0));
      ExpectSameLogitsWithCache(config, {{1}, {2, 3, 4, 5, 6, 7, 8, 9}, {3, 1, 4, 1}}, 12);
      ExpectSameLogitsWithCache(config, {{1, 2}, {3, 4}, {5, 6}}, 15);
    }
  }
}

TEST(KeyValueCacheTest, Gpt2LogitsEqualRecomputedOnes) {
  const Gpt2Config config{
      .vocab_size = 11, .n_positions = 20, .n_embd = 12, .n_layer = 2, .n_head = 3, .n_inner = {}};
  ExpectSameLogitsWithCache(config, {{1}, {2, 3, 4, 5, 6, 7, 8, 9}, {3, 1, 4, 1}}, 12);
}

TEST(KeyValueCacheTest, CountsBytesUpToWindow) {
  const std::vector<CachedLayer> layers = {{8, std::nullopt}, {8, 5}};
  EXPECT_EQ(KeyValueCache::Bytes(layers, /*rows=*/3, /*capacity=*/10, /*element_bytes=*/2),
            3 * (10 + 5) * 8 * 2);
}

}  // namespace
}  // namespace dslaunch::generate_test
