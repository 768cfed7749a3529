// Tests layers that are divided over the ranks of a group, which are threads. Whole models are
// compared with transformers by tests/trainer/tensor_parallel_test.py.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "dslaunch/deferred_init.h"
#include "tests/support/strict_backend.h"
#include "tests/unit/trainer/expect_refused.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/tensor_ranks.h"
#include "trainer/deferred_init/shape_pass.h"
#include "trainer/families/decoder/decoder_config.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/families/mlp/mlp_config.h"
#include "trainer/nn/cross_entropy.h"
#include "trainer/nn/tensor_parallel/divided_module.h"
#include "trainer/nn/tensor_parallel/exchanges.h"
#include "trainer/nn/tensor_parallel/region_seed.h"
#include "trainer/nn/tensor_parallel/vocabulary.h"

namespace dslaunch::tensor_parallel_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kLayers = 2, kBatch = 3, kTokens = 8, kHidden = 16;

Gpt2Config SmallGpt2() {
  Gpt2Config config;
  config.n_layer = kLayers;
  config.n_head = 4;
  config.n_embd = kHidden;
  config.n_positions = kTokens;
  config.vocab_size = 131;
  return config;
}

DecoderConfig SmallDecoder() {
  DecoderConfig config;
  config.num_hidden_layers = kLayers;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.hidden_size = kHidden;
  config.intermediate_size = 24;
  config.max_position_embeddings = kTokens;
  config.vocab_size = 131;
  return config;
}

TensorParallel Part(const ProcessGroup& group, bool sequence_parallel = false) {
  return {.parts = group.world_size(),
          .part = group.rank(),
          .group = &group,
          .sequence_parallel = sequence_parallel};
}

void RunParts(int parts, const std::function<void(const ProcessGroup&)>& rank) {
  for (const auto& error : RunRanks(parts, rank)) EXPECT_EQ(TextOf(error), "");
}

at::Tensor Random(at::IntArrayRef shape, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator);
}

TEST(TensorParallelTest, EnteringRegionSumsGradients) {
  RunParts(2, [](const ProcessGroup& group) {
    const at::Tensor x = Random({2, 4, 3}, 1).requires_grad_();
    const at::Tensor entered = EnterRegion(x, Part(group));
    EXPECT_TRUE(entered.equal(x));
    (entered * (group.rank() + 1)).sum().backward();
    EXPECT_TRUE(x.grad().equal(at::full({2, 4, 3}, 3.0)));
  });
}

TEST(TensorParallelTest, LeavingRegionSumsResults) {
  RunParts(2, [](const ProcessGroup& group) {
    const at::Tensor x = Random({2, 4, 3}, 1).requires_grad_();
    const at::Tensor left = LeaveRegion(x * (group.rank() + 1), Part(group));
    EXPECT_TRUE(at::allclose(left, x * 3));
    left.sum().backward();
    EXPECT_TRUE(x.grad().equal(at::full({2, 4, 3}, group.rank() + 1.0)));
  });
}

TEST(TensorParallelTest, DividesTokensOutsideOfRegions) {
  RunParts(2, [](const ProcessGroup& group) {
    const TensorParallel tensor = Part(group, /*sequence_parallel=*/true);
    const at::Tensor whole = Random({2, 4, 3}, 1);
    const at::Tensor x = whole.narrow(1, 2 * group.rank(), 2).clone().requires_grad_();
    const at::Tensor entered = EnterRegion(x, tensor);
    EXPECT_TRUE(entered.equal(whole));
    const at::Tensor left = LeaveRegion(entered * (group.rank() + 1), tensor);
    EXPECT_TRUE(at::allclose(left, x * 3));
    (left * (group.rank() + 5)).sum().backward();
    EXPECT_TRUE(x.grad().equal(at::full({2, 2, 3}, 3 * (group.rank() + 5.0))));
    ExpectRefused(
        [&] {
          LeaveRegion(at::zeros({1, 3, 2}), tensor);
        },
        ExitCode::kBadInput, HasSubstr("3 tokens, which is not a multiple of the 2"));
  });
}

TEST(TensorParallelTest, SumsGradientsOfRanksThatHoldOnePart) {
  RunParts(4, [](const ProcessGroup& group) {
    const at::Tensor head = at::ones({3}).requires_grad_();
    (SumHoldersGradients(head, 2, Part(group)) * (1 << group.rank())).sum().backward();
    EXPECT_TRUE(head.grad().equal(at::full({3}, group.rank() < 2 ? 3.0 : 12.0)));
  });
}

// With a vocabulary of 5, the last of four ranks has no column.
TEST(TensorParallelTest, CrossEntropyMatchesUndivided) {
  for (const int64_t vocabulary : {131, 132, 5}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(std::to_string(vocabulary) + " " + toString(type));
      const at::Tensor logits = (Random({2, 6, vocabulary}, 3) * 4).to(type);
      at::Tensor targets = at::arange(12).remainder(vocabulary).view({2, 6});
      targets[1][2] = kNoTarget;
      RunParts(4, [&](const ProcessGroup& group) {
        const int64_t columns = (vocabulary + 3) / 4;
        const at::Tensor padded =
            at::constant_pad_nd(logits, {0, 4 * columns - vocabulary}, /*value=*/100);
        for (const int64_t reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
          const at::Tensor whole = logits.clone().requires_grad_();
          const at::Tensor wanted = CrossEntropyOfLogits(whole, targets, reduction);
          wanted.backward();
          const at::Tensor own =
              padded.narrow(2, columns * group.rank(), columns).clone().requires_grad_();
          const at::Tensor loss =
              CrossEntropyOfParts(own, targets, vocabulary, Part(group), reduction);
          EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 2e-6 * wanted.item<double>());
          loss.backward();
          const at::Tensor gradient =
              at::constant_pad_nd(whole.grad(), {0, 4 * columns - vocabulary})
                  .narrow(2, columns * group.rank(), columns);
          EXPECT_TRUE(at::allclose(own.grad().to(at::kFloat), gradient.to(at::kFloat),
                                   type == at::kFloat ? 1e-5 : 1e-2, 1e-7));
        }
      });
    }
  }
}

// Initial weights must not depend on the number of ranks, nor on deferred construction.
TEST(TensorParallelTest, InitialPartsHaveWholeModelsBits) {
  DecoderConfig padded = SmallDecoder();
  padded.pad_token_id = 40;
  for (const ModelConfig& config : {ModelConfig(SmallGpt2()), ModelConfig(padded)}) {
    const std::shared_ptr<Model> whole = MakePart(config, kTokens, {}, 7);
    EXPECT_THAT(CutsIn(*whole), IsEmpty());
    const auto wanted = whole->named_parameters();
    for (const int parts : {2, 4}) {
      for (int part = 0; part < parts; ++part) {
        const TensorParallel tensor = {.parts = parts, .part = part};
        const std::shared_ptr<Model> made = MakePart(config, kTokens, tensor, 7);
        std::shared_ptr<Model> deferred;
        InitRecording recording =
            DeferInit(7, [&] { deferred = MakeModel(config, {kTokens}, tensor); });
        std::vector<at::Tensor> tensors = deferred->parameters();
        recording.Replay(tensors, [&](size_t i, const at::Tensor& values) {
          tensors[i].set_data(values.clone());
        });
        const std::shared_ptr<Model> copied = MakePart(config, kTokens, tensor, 8);
        CopyWeights(*copied, *whole);
        for (const auto& item : copied->named_parameters()) {
          SCOPED_TRACE(item.key());
          EXPECT_TRUE(made->named_parameters()[item.key()].equal(item.value()));
          EXPECT_TRUE(deferred->named_parameters()[item.key()].equal(item.value()));
        }
      }
    }
  }
}

using Operation = StrictBackend::Operation;

// Returns the operations on the group during a forward and a backward pass.
std::vector<Operation> OperationsOf(const ModelConfig& config, const ProcessGroup& group,
                                    bool sequence_parallel) {
  const auto backend = StrictBackend::Install(group);
  const auto model = MakePart(config, kTokens, Part(group, sequence_parallel), 3);
  const at::Tensor tokens = at::arange(kBatch * kTokens).view({kBatch, kTokens});
  model->Loss(model->forward(tokens), tokens, at::Reduction::Mean).backward();
  return backend->operations();
}

int64_t BytesOf(const std::vector<Operation>& operations, const std::string& name) {
  int64_t bytes = 0;
  for (const Operation& operation : operations)
    bytes += operation.name == name ? operation.bytes : 0;
  return bytes;
}

// Section 3 of Shoeybi et al. requires four sums of an activation for each layer. The model adds
// one for the embedding, one for the gradient of the head, and three numbers for each token of the
// loss.
TEST(TensorParallelTest, ExchangesMegatronsElements) {
  constexpr int64_t kActivation = kBatch * kTokens * kHidden * 4;
  constexpr int64_t kLoss = 3 * kBatch * kTokens * 4;
  for (const ModelConfig& config : {ModelConfig(SmallGpt2()), ModelConfig(SmallDecoder())}) {
    RunParts(2, [&](const ProcessGroup& group) {
      const auto operations = OperationsOf(config, group, /*sequence_parallel=*/false);
      EXPECT_EQ(BytesOf(operations, "allreduce"), (4 * kLayers + 2) * kActivation + kLoss);
      EXPECT_EQ(operations.size(), 4 * kLayers + 2 + 2);
    });
  }
  // An all-reduce equals an all-gather and a reduce-scatter of as many bytes; each rank's
  // contribution is one half.
  RunParts(2, [](const ProcessGroup& group) {
    const auto operations = OperationsOf(SmallDecoder(), group, /*sequence_parallel=*/true);
    EXPECT_EQ(BytesOf(operations, "allgather"), (4 * kLayers + 2) * kActivation / 2);
    EXPECT_EQ(BytesOf(operations, "reduce_scatter"), (4 * kLayers + 2) * kActivation);
    EXPECT_EQ(BytesOf(operations, "allreduce"), kLoss + (2 * kLayers + 1) * kHidden * 4)
        << "the loss, and the gradients of the norms";
  });
}

// The plan of the memory needs neither the other ranks nor their group.
TEST(TensorParallelTest, ShapePassOfOneRankNeedsNoGroup) {
  for (const ModelConfig& config : {ModelConfig(SmallGpt2()), ModelConfig(SmallDecoder())}) {
    std::vector<int64_t> live;
    for (const TensorParallel& tensor : {TensorParallel(), TensorParallel{.parts = 2, .part = 1},
                                         TensorParallel{2, 1, nullptr, true}}) {
      std::shared_ptr<Model> model;
      const InitRecording recording =
          DeferInit(3, [&] { model = MakeModel(config, {kTokens}, tensor); });
      const ShapePass pass;
      const at::Tensor tokens = at::zeros({kBatch, kTokens}, at::kLong);
      const at::Tensor loss = model->Loss(model->forward(tokens), tokens, at::Reduction::Mean);
      live.push_back(pass.live_bytes());
      loss.backward();
    }
    EXPECT_LT(live[1], live[0]);
    EXPECT_LT(live[2], live[1]);
  }
}

TEST(TensorParallelTest, RunsOnlyShapesWithoutGroup) {
  EXPECT_THROW(SumOverParts(at::ones({2}), {.parts = 2}), c10::Error);
}

at::Tensor NextNumbers() { return at::rand({5}); }

TEST(RegionSeedTest, DrawsOtherNumbersOnEachRank) {
  std::vector<at::Tensor> inside, outside;
  for (const int part : {0, 1, 0}) {
    at::manual_seed(5);
    {
      const RegionSeed seed({.parts = 2, .part = part}, at::kCPU, /*draws=*/true);
      inside.push_back(NextNumbers());
      if (part == 1) NextNumbers();
    }
    outside.push_back(NextNumbers());
  }
  EXPECT_FALSE(inside[0].equal(inside[1]));
  EXPECT_TRUE(inside[0].equal(inside[2])) << "computed again";
  EXPECT_TRUE(outside[0].equal(outside[1]));
}

TEST(RegionSeedTest, DrawsOtherNumbersInEachRegion) {
  at::manual_seed(5);
  std::vector<at::Tensor> drawn;
  for (int i = 0; i < 2; ++i) {
    const RegionSeed seed({.parts = 2, .part = 1}, at::kCPU, /*draws=*/true);
    drawn.push_back(NextNumbers());
  }
  EXPECT_FALSE(drawn[0].equal(drawn[1]));
}

TEST(RegionSeedTest, DropoutDiffersOnlyIfTokensAreDivided) {
  for (const bool sequence_parallel : {false, true}) {
    std::vector<at::Tensor> dropped;
    for (const int part : {0, 1}) {
      at::manual_seed(5);
      dropped.push_back(DropoutOutsideRegions(at::ones({64}), 0.5, /*train=*/true,
                                              {2, part, nullptr, sequence_parallel}));
    }
    EXPECT_EQ(dropped[0].equal(dropped[1]), !sequence_parallel);
  }
}

TEST(TensorParallelRefusalTest, NamesKeyAndNumbers) {
  const auto refusal = [](const ModelConfig& config, int64_t parts) {
    return config.family().TensorParallelRefusal(config, parts);
  };
  DecoderConfig decoder = SmallDecoder();
  EXPECT_EQ(refusal(decoder, 4), "");
  EXPECT_EQ(refusal(decoder, 8),
            "model.num_attention_heads is 4, which is not a multiple of "
            "tensor_parallel.autotp_size, 8; change one of them");
  decoder.intermediate_size = 25;
  EXPECT_THAT(refusal(decoder, 4), HasSubstr("model.intermediate_size is 25"));
  decoder.num_attention_heads = 12;
  decoder.num_key_value_heads = 3;
  EXPECT_EQ(refusal(decoder, 4),
            "model.num_key_value_heads is 3, and neither it nor tensor_parallel.autotp_size, 4, is "
            "a multiple of the other; change one of them");
  EXPECT_EQ(refusal(SmallGpt2(), 2), "");
  EXPECT_THAT(refusal(SmallGpt2(), 3), HasSubstr("model.n_head is 4"));
  const ModelConfig mlp = MlpConfig{4, 3};
  EXPECT_THAT(refusal(mlp, 2), HasSubstr("model.type mlp cannot be divided"));
  ExpectRefused([&] { MakeModel(mlp, {2}, {.parts = 2}); }, ExitCode::kBadInput,
                HasSubstr("model.type mlp cannot be divided"));
}

}  // namespace
}  // namespace dslaunch::tensor_parallel_test
