#include "trainer/parallel/zero/parameter_gatherer.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "dslaunch/autocast.h"
#include "tests/unit/trainer/expect_refused.h"
#include "tests/unit/trainer/ranks.h"

namespace dslaunch::parameter_gatherer_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace nn = torch::nn;

constexpr int64_t kVocabulary = 40, kWidth = 16, kTokens = 6, kLayers = 3;

struct BlockImpl : nn::Module {
  BlockImpl()
      : ln_1(register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        qkv(register_module("qkv", nn::Linear(kWidth, 3 * kWidth))),
        proj(register_module("proj", nn::Linear(kWidth, kWidth))),
        ln_2(register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        fc(register_module("fc", nn::Linear(kWidth, 4 * kWidth))),
        out(register_module("out", nn::Linear(nn::LinearOptions(4 * kWidth, kWidth).bias(false)))) {
  }
  at::Tensor forward(at::Tensor x) {
    std::vector<at::Tensor> heads;
    for (const at::Tensor& part : qkv(ln_1(x)).chunk(3, -1)) {
      heads.push_back(part.unflatten(-1, {2, -1}).transpose(1, 2));
    }
    const at::Tensor attention =
        at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.0, /*is_causal=*/true);
    x = x + proj(attention.transpose(1, 2).flatten(2));
    return x + out(at::gelu(fc(ln_2(x))));
  }
  nn::LayerNorm ln_1;
  nn::Linear qkv, proj;
  nn::LayerNorm ln_2;
  nn::Linear fc, out;
};
TORCH_MODULE(Block);

// A GPT with every special case of a module. The head is the token embedding again, and positions
// are frozen. Also has a convolution, a batch norm, a parameter of a module with children, and
// PyTorch's own transformer layer.
struct NetImpl : nn::Module {
  NetImpl()
      : wte(register_module("wte", nn::Embedding(kVocabulary, kWidth))),
        wpe(register_module("wpe", nn::Embedding(kTokens, kWidth))),
        conv(register_module("conv", nn::Conv1d(nn::Conv1dOptions(kWidth, kWidth, 3).padding(1)))),
        norm(register_module("norm", nn::BatchNorm1d(kWidth))),
        h(register_module("h", nn::ModuleList())),
        layer(register_module(
            "layer",
            nn::TransformerEncoderLayer(
                nn::TransformerEncoderLayerOptions(kWidth, 2).dim_feedforward(24).dropout(0)))),
        scale(register_parameter("scale", at::full({kWidth}, 0.5))) {
    for (int64_t i = 0; i < kLayers; ++i) h->push_back(Block());
    wpe->weight.set_requires_grad(false);
  }
  // Maps int64 [B, T] to [B, T, kVocabulary].
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = wte(tokens);
    x = x + wpe(at::arange(tokens.size(1)));
    x = x + norm(conv(x.transpose(1, 2))).transpose(1, 2);
    for (int64_t i = 0; i < kLayers; ++i) {
      if (fail_at == i) throw std::runtime_error("block " + std::to_string(i) + " fails");
      x = h[static_cast<size_t>(backwards ? kLayers - 1 - i : i)]->as<Block>()->forward(x);
    }
    x = layer(x.transpose(0, 1)).transpose(0, 1) * scale;
    return x.matmul(wte->weight.t());
  }
  nn::Embedding wte, wpe;
  nn::Conv1d conv;
  nn::BatchNorm1d norm;
  nn::ModuleList h;
  nn::TransformerEncoderLayer layer;
  at::Tensor scale;
  bool backwards = false;  // reversed order of the blocks
  int64_t fail_at = -1;
};
TORCH_MODULE(Net);

// Sets the same weights in every thread. The random generator cannot, because threads share it.
void Fill(nn::Module& module) {
  const at::NoGradGuard no_grad;
  double seed = 0;
  for (auto& item : module.named_parameters()) {
    const at::Tensor row = at::arange(item.value().numel(), at::kDouble);
    item.value().copy_(((row * 0.7 + ++seed).sin() * 0.3 + (item.value().dim() == 1 ? 0.6 : 0.0))
                           .view(item.value().sizes()));
  }
}

at::Tensor Tokens(int64_t seed) {
  return at::arange(seed, seed + 3 * kTokens).mul(7).remainder(kVocabulary).view({3, kTokens});
}

at::Tensor Loss(const at::Tensor& logits, int64_t seed) {
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), Tokens(seed + 1).flatten());
}

// Divides a module into a unit for each of its modules that has parameters.
struct Sharded {
  Sharded(nn::Module& module, const ProcessGroup& group, const GatherLimits& limits,
          int first_channel = 0)
      : exchange(group) {
    const at::NoGradGuard no_grad;
    std::vector<ParameterGatherer::Unit> units;
    std::set<at::TensorImpl*> seen;
    for (const auto& item : module.named_modules()) {
      std::vector<at::Tensor> own;
      int64_t elements = 0;
      for (const at::Tensor& parameter : item.value()->parameters(/*recurse=*/false)) {
        if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
        own.push_back(parameter);
        elements += parameter.numel();
      }
      if (own.empty()) continue;
      const int64_t n = (elements + group.world_size() - 1) / group.world_size();
      const at::Tensor values = at::zeros({n * group.world_size()}, own[0].options());
      const at::Tensor flat = ParameterGatherer::MakeFlat(values.numel(), values.options());
      int64_t start = 0;
      for (at::Tensor& parameter : own) {
        values.narrow(0, start, parameter.numel()).copy_(parameter.view(-1));
        parameter.set_data(flat.narrow(0, start, parameter.numel()).view(parameter.sizes()));
        start += parameter.numel();
      }
      index[item.key()] = units.size();
      whole += flat.numel();
      largest = std::max(largest, flat.numel());
      units.push_back({item.key(), flat, values.narrow(0, group.rank() * n, n).clone()});
    }
    shards.reserve(units.size());
    for (const auto& unit : units) shards.push_back(unit.shard);
    gatherer.emplace(exchange, first_channel, units, limits);
  }

  std::map<std::string, size_t> index;
  std::vector<at::Tensor> shards;
  int64_t whole = 0, largest = 0;  // numbers of elements
  ShardExchange exchange;
  std::optional<ParameterGatherer> gatherer;
};

// Holds a sharded module and the same module without sharding.
struct Pair {
  Pair(const ProcessGroup& group, const GatherLimits& limits) {
    at::set_num_threads(1);  // the ranks themselves occupy the cores
    Fill(*plain);
    Fill(*net);
    sharded.emplace(*net, group, limits);
  }
  ParameterGatherer& gatherer() { return *sharded->gatherer; }

  void ExpectSameGradients() {
    const auto parameters = net->named_parameters();
    for (const auto& item : plain->named_parameters()) {
      const at::Tensor gradient = parameters[item.key()].grad();
      ASSERT_EQ(gradient.defined(), item.value().grad().defined()) << item.key();
      if (gradient.defined()) {
        EXPECT_TRUE(at::equal(gradient, item.value().grad())) << item.key();
      }
    }
  }

  // Runs a training pass of both modules, which adds to existing gradients.
  void Train(int64_t seed) {
    at::Tensor logits = plain->forward(Tokens(seed));
    Loss(logits, seed).backward();
    const at::Tensor expected = logits.detach();
    logits.reset();

    gatherer().Begin(/*trains=*/true);
    logits = net->forward(Tokens(seed));
    EXPECT_TRUE(at::equal(logits, expected));
    Loss(logits, seed).backward();
    gatherer().End();
    EXPECT_EQ(gatherer().live_elements(), 0);
    ExpectSameGradients();
  }

  void Predict(int64_t seed) {
    const at::Tensor expected = plain->forward(Tokens(seed));
    gatherer().Begin(/*trains=*/false);
    EXPECT_TRUE(at::equal(net->forward(Tokens(seed)), expected));
    gatherer().End();
    EXPECT_EQ(gatherer().live_elements(), 0);
  }

  Net plain, net;
  std::optional<Sharded> sharded;
};

void ExpectNoErrors(const std::vector<std::exception_ptr>& errors) {
  for (size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(TextOf(errors[i]), "") << "rank " << i;
}

constexpr GatherLimits kSmall = {
    .prefetch_bucket_size = 1200, .max_live_parameters = 2500, .max_reuse_distance = 600};
constexpr GatherLimits kNone = {
    .prefetch_bucket_size = 0, .max_live_parameters = 0, .max_reuse_distance = 0};

struct Case {
  int ranks;
  GatherLimits limits;
};

class GathererTest : public testing::TestWithParam<Case> {};

TEST_P(GathererTest, MatchesUnshardedModelBitForBit) {
  const auto& [ranks, limits] = GetParam();
  ExpectNoErrors(RunRanks(ranks, [&](const ProcessGroup& group) {
    Pair pair(group, limits);
    const int64_t whole = pair.sharded->whole;
    // Each kind of pass runs with and without a known order.
    for (int64_t round = 0; round < 3; ++round) {
      pair.Train(round + group.rank());
      const GatherCounts& counts = pair.gatherer().counts();
      const int64_t limit = std::max(limits.max_live_parameters, pair.sharded->largest);
      EXPECT_LE(counts.peak_live_elements, std::min(limit, whole)) << round;
      pair.plain->eval();
      pair.net->eval();
      {
        const at::NoGradGuard no_grad;
        pair.Predict(round + group.rank());
      }
      {
        const c10::InferenceMode inference;
        pair.Predict(round + group.rank());
      }
      pair.plain->train();
      pair.net->train();
    }
    // Two forward passes precede the backward passes.
    at::Tensor loss = Loss(pair.plain->forward(Tokens(1)), 1);
    (loss + Loss(pair.plain->forward(Tokens(2)), 2)).backward();
    pair.gatherer().Begin(true);
    loss = Loss(pair.net->forward(Tokens(1)), 1);
    (loss + Loss(pair.net->forward(Tokens(2)), 2)).backward();
    pair.gatherer().End();
    pair.ExpectSameGradients();
  }));
}

INSTANTIATE_TEST_SUITE_P(RanksAndLimits, GathererTest,
                         testing::Values(Case{1, kSmall}, Case{2, GatherLimits{}}, Case{2, kSmall},
                                         Case{2, kNone}, Case{3, kSmall}));

TEST(Gatherer, GathersAheadFromSecondPassOn) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    Pair pair(group, {});
    pair.Train(0);
    const GatherCounts first = pair.gatherer().counts();
    EXPECT_EQ(first.units, pair.sharded->index.size()) << "each once, and stays";
    EXPECT_EQ(first.ahead, 0);
    pair.Train(1);
    const GatherCounts second = pair.gatherer().counts();
    EXPECT_EQ(second.units, first.units);
    EXPECT_EQ(second.ahead, first.units) << "all but the first one, which comes with Begin";
    EXPECT_EQ(second.bytes, 4 * pair.sharded->whole);

    // Inference has a separate order.
    const at::NoGradGuard no_grad;
    pair.Predict(0);
    EXPECT_EQ(pair.gatherer().counts().ahead, 0);
    pair.gatherer().Begin(false);
    EXPECT_EQ(pair.gatherer().live_elements(), pair.sharded->whole) << "before any operation";
    pair.gatherer().End();
  }));
}

TEST(Gatherer, GathersAheadWithinLimits) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    const int64_t bucket = 2000;
    Pair pair(group, {.prefetch_bucket_size = bucket, .max_reuse_distance = 0});
    pair.Train(0);
    pair.Train(1);
    const GatherCounts ahead = pair.gatherer().counts();
    EXPECT_GT(ahead.ahead, 10);
    EXPECT_LE(ahead.peak_live_elements, bucket + 2 * pair.sharded->largest);
    pair.gatherer().Begin(true);
    EXPECT_GT(pair.gatherer().live_elements(), 0);
    EXPECT_LE(pair.gatherer().live_elements(), bucket);
    pair.gatherer().End();

    Pair late(group, {.prefetch_bucket_size = bucket, .max_reuse_distance = 0, .overlap = false});
    late.Train(0);
    late.Train(1);
    EXPECT_EQ(late.gatherer().counts().ahead, 0);
    EXPECT_LE(late.gatherer().counts().peak_live_elements, 2 * late.sharded->largest);
  }));
}

TEST(Gatherer, ReadWaitsForUnitThatStays) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    const ShardExchange exchange(group);
    std::vector<at::Tensor> flats;
    std::vector<ParameterGatherer::Unit> units;
    for (int i = 0; i < 3; ++i) {
      flats.push_back(at::full({8}, -1.0));
      units.push_back({"unit", flats[static_cast<size_t>(i)],
                       flats.back().narrow(0, 4 * group.rank(), 4), /*stays=*/true});
    }
    const auto expected = [](int round) {
      return at::full({2}, round).add(at::arange(2)).repeat_interleave(4).to(at::kFloat);
    };
    const auto refresh = [&](ParameterGatherer& gatherer, int round) {
      gatherer.Settle();
      for (const ParameterGatherer::Unit& unit : units) unit.shard.fill_(round + group.rank());
      gatherer.Refresh({2, 0, 1});
    };
    {
      ParameterGatherer gatherer(exchange, 0, units, {});
      EXPECT_EQ(gatherer.awaited_units(), 0);
      refresh(gatherer, 1);
      EXPECT_EQ(gatherer.awaited_units(), 3);
      const at::Tensor view = flats[0].narrow(0, 2, 4).view({2, 2});
      EXPECT_EQ(gatherer.awaited_units(), 3) << "a view reads nothing";
      EXPECT_TRUE(at::equal(view.flatten(), expected(1).narrow(0, 2, 4)));
      EXPECT_EQ(gatherer.awaited_units(), 2);
      EXPECT_TRUE(at::equal(flats[2] + 0, expected(1)));
      EXPECT_EQ(gatherer.awaited_units(), 1);
      gatherer.Settle();
      EXPECT_EQ(gatherer.awaited_units(), 0);
      EXPECT_TRUE(at::equal(flats[1], expected(1)));

      refresh(gatherer, 2);
      gatherer.Begin(/*trains=*/true);  // in the thread whose operations wait
      EXPECT_EQ(gatherer.awaited_units(), 3);
      // Another thread may read the parameters.
      std::thread([&] { gatherer.Begin(/*trains=*/false); }).join();
      EXPECT_EQ(gatherer.awaited_units(), 0);
      EXPECT_TRUE(at::equal(flats[1], expected(2)));

      refresh(gatherer, 3);  // destroyed while a refresh is pending
    }
    for (const at::Tensor& flat : flats) EXPECT_EQ(flat.numel(), 8);
    EXPECT_EQ(ParameterGatherer::OwnerOf(flats[0]), ParameterGatherer::Owner::kOther);
    flats[0].fill_(5);
    EXPECT_EQ(flats[0].sum().item<double>(), 40) << "their memory stays theirs";
  }));
}

TEST(Gatherer, KeepsUnitsNeededSoon) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    Pair far(group, {.prefetch_bucket_size = 0, .max_reuse_distance = 0});
    Pair near(group, {.prefetch_bucket_size = 0, .max_reuse_distance = 2500});
    for (int64_t round = 0; round < 2; ++round) {
      far.Train(round);
      near.Train(round);
    }
    EXPECT_LT(near.gatherer().counts().units, far.gatherer().counts().units);
    EXPECT_GT(near.gatherer().counts().peak_live_elements,
              far.gatherer().counts().peak_live_elements);
    // Parameters are gathered in the forward pass, and again in the backward pass if that reads
    // them.
    EXPECT_LT(far.gatherer().counts().bytes, 4 * 3 * far.sharded->whole);
  }));
}

TEST(Gatherer, AnotherOrderGivesSameResults) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    Pair pair(group, kSmall);
    for (int64_t round = 0; round < 6; ++round) {
      pair.net->backwards = pair.plain->backwards = round % 3 == 2;
      pair.Train(round);
    }
    const GatherCounts changed = pair.gatherer().counts();
    pair.Train(6);
    const GatherCounts again = pair.gatherer().counts();
    EXPECT_GT(again.ahead, changed.ahead);
  }));
}

TEST(Gatherer, RejectsReadsOutsidePasses) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    Pair pair(group, {});
    const at::Tensor weight = pair.net->h[1]->as<Block>()->fc->weight;
    const auto refusal = AllOf(HasSubstr("h.1.fc"), HasSubstr("GatheredParameters"));
    for (int i = 0; i < 2; ++i) {  // before and after a pass
      ExpectRefused([&] { weight.sum(); }, ExitCode::kBadInput, refusal);
      ExpectRefused([&] { weight[0][0].item<float>(); }, ExitCode::kBadInput, refusal);
      ExpectRefused(
          [&] {
            at::cat({at::ones({16}), weight.view(-1)});
          },
          ExitCode::kBadInput, refusal);
      ExpectRefused([&] { weight.detach().zero_(); }, ExitCode::kBadInput, refusal);
      ExpectRefused([&] { pair.net->forward(Tokens(0)); }, ExitCode::kBadInput,
                    AllOf(HasSubstr("wte"), HasSubstr("GatheredParameters")));
      EXPECT_THROW(weight.data_ptr<float>(), c10::Error);
      EXPECT_THROW(weight.storage().data(), c10::Error);
      // Sizes and strides are known, and views can be made.
      EXPECT_EQ(weight.t().sizes(), at::IntArrayRef({kWidth, 4 * kWidth}));
      pair.Train(i);
    }

    // This backward pass comes after the end of the pass.
    pair.gatherer().Begin(true);
    const at::Tensor loss = Loss(pair.net->forward(Tokens(0)), 0);
    pair.gatherer().End();
    ExpectRefused([&] { loss.backward(); }, ExitCode::kBadInput, HasSubstr("GatheredParameters"));
  }));
}

TEST(Gatherer, RejectsWritesDuringPass) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    Pair pair(group, {});
    const at::NoGradGuard no_grad;
    pair.gatherer().Begin(false);
    at::Tensor weight = pair.net->wte->weight;
    weight.sum();
    ExpectRefused([&] { weight.mul_(2); }, ExitCode::kBadInput,
                  AllOf(HasSubstr("wte"), HasSubstr("writes")));
    ExpectRefused([&] { at::add_out(weight, weight, weight); }, ExitCode::kBadInput,
                  AllOf(HasSubstr("wte"), HasSubstr("writes")));
    pair.gatherer().End();
  }));
}

TEST(Gatherer, StaysUsableAfterExceptionInPass) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    Pair pair(group, kSmall);
    pair.Train(0);
    for (int64_t at = 0; at < 3; ++at) {
      pair.net->fail_at = at;
      pair.gatherer().Begin(true);
      EXPECT_THROW(pair.net->forward(Tokens(0)), std::runtime_error);
      pair.net->fail_at = -1;
      // This operation fails while its parameters are gathered.
      EXPECT_THROW(at::mm(pair.net->wte->weight, at::ones({3, 3})), c10::Error);
      pair.Train(at);  // the engine's next Begin
      pair.Train(at);
    }
    const at::NoGradGuard no_grad;
    pair.net->norm->running_mean.copy_(pair.plain->norm->running_mean);
    pair.net->norm->running_var.copy_(pair.plain->norm->running_var);
    pair.net->eval();
    pair.plain->eval();
    pair.Predict(5);
  }));
}

TEST(Gatherer, KeepsUnshardedUnitsUntilReshard) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    Pair pair(group, kSmall);
    const at::NoGradGuard no_grad;
    const at::Tensor weight = pair.net->h[0]->as<Block>()->fc->weight;
    const at::Tensor expected = pair.plain->h[0]->as<Block>()->fc->weight;
    const std::vector<size_t> units = {pair.sharded->index["h.0.fc"], pair.sharded->index["wte"]};

    pair.gatherer().Unshard(units);
    EXPECT_TRUE(at::equal(weight, expected));
    EXPECT_EQ(weight.data_ptr<float>()[1], expected[0][1].item<float>());
    // Guards may be nested.
    pair.gatherer().Unshard({units[0]});
    pair.gatherer().Reshard({units[0]}, /*keep=*/false);
    EXPECT_TRUE(at::equal(weight, expected));
    weight.mul_(2);
    pair.gatherer().Reshard(units, /*keep=*/false);
    EXPECT_EQ(pair.gatherer().live_elements(), 0);
    ExpectRefused([&] { weight.sum(); }, ExitCode::kBadInput, HasSubstr("h.0.fc"));

    pair.gatherer().Unshard(units);
    EXPECT_TRUE(at::equal(weight, expected)) << "what was not to be kept is forgotten";
    weight.mul_(3);
    pair.gatherer().Reshard(units, /*keep=*/true);
    expected.mul_(3);
    pair.gatherer().Unshard(units);
    EXPECT_TRUE(at::equal(weight, expected));
    // The parameters also stay gathered during a pass.
    {
      const at::AutoGradMode grad(true);
      pair.gatherer().Begin(true);
      const at::Tensor logits = pair.net->forward(Tokens(0));
      EXPECT_TRUE(at::equal(logits, pair.plain->forward(Tokens(0))));
      pair.gatherer().End();
    }
    EXPECT_TRUE(at::equal(weight, expected));
    pair.gatherer().Reshard(units, false);
    EXPECT_EQ(pair.gatherer().live_elements(), 0);
  }));
}

TEST(Gatherer, NextPassReadsUpdatedShards) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    Pair pair(group, {});
    for (int64_t round = 0; round < 3; ++round) {
      pair.Train(round);
      const at::NoGradGuard no_grad;
      for (const at::Tensor& shard : pair.sharded->shards) shard.mul_(0.9);
      for (const at::Tensor& parameter : pair.plain->parameters()) parameter.mul_(0.9);
    }
  }));
}

TEST(Gatherer, GathersInAutocastDtype) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    for (const GatherLimits& limits : {GatherLimits{}, kSmall, kNone}) {
      Pair pair(group, limits);
      for (int round = 0; round < 3; ++round) {
        const AutocastScope autocast(at::kBFloat16);
        pair.Train(round);
        const int64_t limit = std::max(limits.max_live_parameters, pair.sharded->largest);
        EXPECT_LE(pair.gatherer().counts().peak_live_elements, limit);
        pair.plain->eval();
        pair.net->eval();
        {
          const at::NoGradGuard no_grad;
          pair.Predict(round);
        }
        {
          const c10::InferenceMode inference;
          pair.Predict(round);
        }
        pair.plain->train();
        pair.net->train();
      }
    }
  }));
}

TEST(Gatherer, AutocastKeepsNoCopies) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    Pair pair(group, {.prefetch_bucket_size = 0, .max_reuse_distance = 0});
    nn::Linear& linear = pair.net->h[0]->as<Block>()->fc;
    const at::Tensor input = at::ones({2, kWidth});
    const AutocastScope autocast(at::kBFloat16);
    pair.gatherer().Begin(true);
    EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
    const at::Tensor output = linear(input);
    EXPECT_EQ(output.scalar_type(), at::kBFloat16);
    EXPECT_THROW(linear->weight.storage().data(), c10::Error) << "cast shards were gathered";
    EXPECT_EQ(pair.gatherer().counts().bytes, 2 * (linear->weight.numel() + linear->bias.numel()));
    // The user's own copy is an independent tensor.
    const at::Tensor copy = linear->weight.to(at::kBFloat16);
    copy.mul_(2);
    EXPECT_TRUE(
        at::equal(copy, pair.plain->h[0]->as<Block>()->fc->weight.to(at::kBFloat16).mul(2)));
    pair.gatherer().End();
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled()) << "as it was";
  }));
}

TEST(Gatherer, GathersTwoModelsInOneThread) {
  ExpectNoErrors(RunRanks(2, [](const ProcessGroup& group) {
    nn::Linear first(8, 8), second(8, 8), plain_first(8, 8), plain_second(8, 8);
    for (nn::Linear linear : {first, second, plain_first, plain_second}) Fill(*linear);
    Sharded one(*first, group, {});
    const at::Tensor input = at::ones({2, 8});
    {
      Sharded two(*second, group, {}, /*first_channel=*/1);
      for (int round = 0; round < 2; ++round) {
        one.gatherer->Begin(true);
        two.gatherer->Begin(true);
        const at::Tensor both =
            at::mm(first->weight, second->weight).sum() + second(first(input)).sum();
        both.backward();
        two.gatherer->End();
        one.gatherer->End();
      }
    }
    for (int round = 0; round < 2; ++round) {
      (at::mm(plain_first->weight, plain_second->weight).sum() +
       plain_second(plain_first(input)).sum())
          .backward();
    }
    EXPECT_TRUE(at::equal(first->weight.grad(), plain_first->weight.grad()));
    EXPECT_TRUE(at::equal(second->weight.grad(), plain_second->weight.grad()));
    one.gatherer->Begin(false);
    EXPECT_TRUE(at::equal(first(input), plain_first(input)));
    one.gatherer->End();
  }));
}

TEST(Gatherer, LostRankErrorNamesModule) {
  // The second time, the loss is already known when gathering begins.
  for (const auto delay : {std::chrono::milliseconds(0), std::chrono::milliseconds(200)}) {
    const auto errors = RunRanks(2, [&](const ProcessGroup& group) {
      Pair pair(group, {});
      if (group.rank() == 1) throw std::runtime_error("lost");
      std::this_thread::sleep_for(delay);
      pair.gatherer().Begin(true);
      pair.net->forward(Tokens(0));
    });
    EXPECT_THAT(TextOf(errors[0]), AllOf(HasSubstr("parameters of wte"), HasSubstr("rank 1")));
  }
}

}  // namespace
}  // namespace dslaunch::parameter_gatherer_test
