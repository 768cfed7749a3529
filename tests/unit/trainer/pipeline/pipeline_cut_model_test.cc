// Tests models that are cut into stages, all of which run in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <map>
#include <string>
#include <variant>

#include "tests/unit/trainer/expect_refused.h"
#include "trainer/families/cnn/cnn_config.h"
#include "trainer/families/decoder/decoder_config.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/families/make_model.h"
#include "trainer/families/mlp/mlp_config.h"
#include "trainer/families/resnet18/resnet18_config.h"
#include "trainer/pipeline/stage.h"

namespace dslaunch::pipeline_cut_model_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
namespace nn = torch::nn;

constexpr uint64_t kSeed = 11;

using Make = std::function<std::shared_ptr<Model>()>;
using Named = std::vector<std::pair<std::string, at::Tensor>>;

Named TensorsOf(const nn::Module& module) {
  Named tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

PipelineConfig Stages(int64_t stages, const std::string& partition = "parameters",
                      int64_t virtual_stages = 1) {
  return {.stages = stages, .partition = partition, .virtual_stages = virtual_stages};
}

// One stage's parts, and the model that the parts were cut from.
struct CutStage {
  std::shared_ptr<Model> model;
  StageParts parts;

  // Allocates and initializes the tensors, as the engine does.
  void Materialize() {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : TensorsOf(*parts.module)) tensors.push_back(tensor);
    parts.deferred->Replay(
        tensors, [&](size_t index, const at::Tensor& values) { tensors[index].set_data(values); });
  }
};

CutStage CutOne(const Make& make, const PipelineConfig& config, int stage,
                const std::vector<double>& seconds = {}) {
  CutStage cut;
  InitRecording deferred = DeferInit(kSeed, [&] { cut.model = make(); });
  cut.parts = CutModel(cut.model, std::move(deferred), config, stage, seconds);
  return cut;
}

std::vector<CutStage> CutAll(const Make& make, const PipelineConfig& config) {
  std::vector<CutStage> stages;
  for (int stage = 0; stage < config.stages; ++stage) {
    stages.push_back(CutOne(make, config, stage));
    stages.back().Materialize();
  }
  return stages;
}

at::Tensor RunAll(const std::vector<CutStage>& stages, const at::Tensor& inputs) {
  Tensors x = {inputs};
  for (size_t chunk = 0; chunk < stages[0].parts.chunks.size(); ++chunk) {
    for (const CutStage& stage : stages) {
      for (const StageLayer& layer : stage.parts.chunks[chunk]) x = layer.forward(x);
    }
  }
  return x.at(0);
}

std::vector<std::pair<std::string, std::vector<int>>> TiedOf(const StageParts& parts) {
  std::vector<std::pair<std::string, std::vector<int>>> tied;
  for (const TiedTensor& item : parts.cut.tied) tied.emplace_back(item.name, item.stages);
  return tied;
}

std::vector<std::string> NamesOf(const nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : TensorsOf(module)) names.push_back(name);
  return names;
}

bool HasMemory(const at::Tensor& tensor) {
  try {
    return tensor.const_data_ptr() != nullptr;
  } catch (const c10::Error&) {
    return false;
  }
}

void ExpectStagesMakeTheWhole(const Make& make, const at::Tensor& inputs,
                              const PipelineConfig& config) {
  SCOPED_TRACE(std::to_string(config.stages) + " stages, " + std::to_string(config.virtual_stages) +
               " chunks, " + config.partition);
  at::manual_seed(kSeed);
  const std::shared_ptr<Model> whole = make();
  const Named expected = TensorsOf(*whole);
  const std::vector<CutStage> stages = CutAll(make, config);

  std::map<std::string, std::vector<int>> holders;
  for (size_t s = 0; s < stages.size(); ++s) {
    const Named own = TensorsOf(*stages[s].parts.module);
    size_t next = 0;  // index of the next tensor; tensors must keep the order of the whole model
    for (const auto& [name, tensor] : own) {
      while (next < expected.size() && expected[next].first != name) ++next;
      ASSERT_LT(next, expected.size()) << name;
      EXPECT_TRUE(at::equal(tensor, expected[next].second)) << name;
      EXPECT_EQ(tensor.requires_grad(), expected[next].second.requires_grad()) << name;
      holders[name].push_back(static_cast<int>(s));
    }
    for (const auto& [name, tensor] : TensorsOf(*stages[s].model)) {
      EXPECT_EQ(HasMemory(tensor),
                holders[name].size() > 0 && holders[name].back() == static_cast<int>(s))
          << name << " on stage " << s;
    }
  }
  std::vector<std::pair<std::string, std::vector<int>>> tied;
  for (const auto& item : whole->named_parameters()) {
    if (holders[item.key()].size() > 1) tied.emplace_back(item.key(), holders[item.key()]);
  }
  for (const auto& [name, tensor] : expected) EXPECT_FALSE(holders[name].empty()) << name;
  for (size_t s = 0; s < stages.size(); ++s) {
    auto own = tied;
    std::erase_if(own, [&](const auto& item) {
      return std::find(item.second.begin(), item.second.end(), s) == item.second.end();
    });
    EXPECT_EQ(TiedOf(stages[s].parts), own) << s;
  }

  whole->eval();
  for (const CutStage& stage : stages) stage.parts.module->eval();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(RunAll(stages, inputs), whole->forward(inputs)));
}

constexpr Gpt2Config kGpt2{.vocab_size = 37,
                           .n_positions = 8,
                           .n_embd = 12,
                           .n_layer = 6,
                           .n_head = 3,
                           .n_inner = {},
                           .resid_pdrop = 0.5,
                           .embd_pdrop = 0.5,
                           .attn_pdrop = 0.5};

Make Gpt2() {
  return [] { return MakeModel(kGpt2, {8}); };
}

ModelConfig Decoder(bool tied) {
  DecoderConfig config;
  config.model_type = DecoderConfig::Type::kQwen3;
  config.vocab_size = 37;
  config.hidden_size = config.intermediate_size = 12;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 3;
  config.max_position_embeddings = 8;
  config.tie_word_embeddings = tied;
  return config;
}

TEST(PipelineCutModelTest, StagesOfBuiltInModelsFormTheWholeModel) {
  using Cuts = std::vector<PipelineConfig>;
  const struct {
    ModelConfig config;
    std::vector<int64_t> input_shape;
    size_t layers;
    Cuts cuts;
  } cases[] = {{MlpConfig{20, 10}, {28}, 2, {Stages(1), Stages(2), Stages(1, "uniform", 2)}},
               {CnnConfig{16, 10}, {1, 12, 14}, 4, {Stages(2), Stages(2, "uniform", 2), Stages(4)}},
               {Resnet18Config{5}, {3, 16, 16}, 10, {Stages(2, "parameters", 4)}},
               {Resnet18Config{5}, {3, 70, 66}, 10, {Stages(3, "uniform")}},
               {kGpt2,
                {8},
                8,
                {Stages(1), Stages(2), Stages(2, "uniform", 2), Stages(4), Stages(4, "uniform", 2),
                 Stages(8)}},
               {Decoder(/*tied=*/false), {8}, 6, {Stages(2), Stages(2, "uniform", 2), Stages(6)}},
               {Decoder(/*tied=*/true), {8}, 6, {Stages(2), Stages(3)}}};
  for (const auto& c : cases) {
    SCOPED_TRACE("model " + std::to_string(&c - cases));
    const Make make = [&] { return MakeModel(c.config, c.input_shape); };
    ASSERT_EQ(make()->Layers().size(), c.layers);
    std::vector<int64_t> shape = c.input_shape;
    shape.insert(shape.begin(), 3);
    const bool tokens = c.config.family().TakesTokens();
    const at::Tensor inputs = tokens ? at::randint(37, shape, at::kLong) : at::rand(shape);
    for (const PipelineConfig& cut : c.cuts) ExpectStagesMakeTheWhole(make, inputs, cut);
  }
}

TEST(PipelineCutModelTest, TiesGpt2Embedding) {
  const std::vector<CutStage> stages = CutAll(Gpt2(), Stages(4, "uniform"));
  using Tied = std::pair<std::string, std::vector<int>>;
  const Tied words("transformer.wte.weight", {0, 3});
  EXPECT_THAT(TiedOf(stages[0].parts), ElementsAre(words));
  EXPECT_THAT(TiedOf(stages[1].parts), ElementsAre());
  EXPECT_THAT(TiedOf(stages[3].parts), ElementsAre(words));
  EXPECT_EQ(stages[1].parts.chunks[0][0].name, "transformer.h.1");
  EXPECT_EQ(stages[1].parts.chunks[0][0].index, 2u);
  EXPECT_THAT(stages[0].parts.parts,
              ElementsAre("layers 0 to 1, 2.4 k parameters", "layers 2 to 3, 3.8 k parameters",
                          "layers 4 to 5, 3.8 k parameters", "layers 6 to 7, 2.4 k parameters"));
  // The embedding's dropout is a module without tensors, so it must be switched explicitly.
  const at::Tensor tokens = at::zeros({1, 8}, at::kLong);
  const auto embed = [&] { return stages[0].parts.chunks[0][0].forward({tokens})[0]; };
  EXPECT_GT((embed() == 0).sum().item<int64_t>(), 0) << "they begin in training mode";
  stages[0].parts.module->eval();
  EXPECT_EQ((embed() == 0).sum().item<int64_t>(), 0);
  stages[0].parts.module->train();
  EXPECT_GT((embed() == 0).sum().item<int64_t>(), 0);
}

TEST(PipelineCutModelTest, GradientsMatchTheWholeModel) {
  Gpt2Config config = kGpt2;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
  const Make make = [&] { return MakeModel(config, {8}); };
  at::manual_seed(kSeed);
  const std::shared_ptr<Model> whole = make();
  const at::Tensor tokens = at::randint(37, {3, 8}, at::kLong);
  whole->Loss(whole->forward(tokens), tokens).backward();
  const std::vector<CutStage> stages = CutAll(make, Stages(4));
  whole->Loss(RunAll(stages, tokens), tokens).backward();
  for (const auto& item : whole->named_parameters()) {
    at::Tensor sum = at::zeros_like(item.value());
    for (const CutStage& stage : stages) {
      const auto own = stage.parts.module->named_parameters();
      if (own.contains(item.key())) sum += own[item.key()].grad();
    }
    EXPECT_TRUE(at::allclose(sum, item.value().grad(), 1e-5, 1e-7)) << item.key();
  }
}

TEST(PipelineCutModelTest, LayersRejectInputsThatForwardRejects) {
  const std::vector<CutStage> stages = CutAll(Gpt2(), Stages(2));
  const StageLayer& embedding = stages[0].parts.chunks[0][0];
  ExpectRefused(
      [&] {
        embedding.forward({at::zeros({2, 9}, at::kLong)});
      },
      ExitCode::kBadInput,
      "stage 0, layer 0 (embedding): gpt2 was given 9 tokens, more than "
      "model.n_positions, 8");
  ExpectRefused(
      [&] {
        embedding.forward({at::zeros({2, 5})});
      },
      ExitCode::kBadInput, HasSubstr("takes token ids"));
  const at::Tensor x = at::zeros({1, 4, 12});
  ExpectRefused(
      [&] {
        stages[1].parts.chunks[0][0].forward({x, x});
      },
      ExitCode::kBadInput,
      AllOf(StartsWith("stage 1, layer "), HasSubstr("takes 1 tensor but gets 2")));
}

TEST(PipelineCutModelTest, RejectsMoreStagesThanLayers) {
  const Make mlp = [] { return MakeModel(MlpConfig{4, 3}, {7}); };
  ExpectRefused([&] { CutOne(mlp, Stages(3), 0); }, ExitCode::kBadInput,
                AllOf(HasSubstr("2 layers"), HasSubstr("3")));
}

TEST(PipelineCutModelTest, PartitionMatchesNamesOfLayers) {
  const CutStage last = CutOne(Gpt2(), Stages(3, "type:transformer\\.h"), 2);
  EXPECT_THAT(NamesOf(*last.parts.module), testing::Contains("transformer.h.4.ln_1.weight"));
  EXPECT_THAT(NamesOf(*last.parts.module),
              testing::Not(testing::Contains("transformer.h.3.ln_1.weight")));
}

TEST(PipelineCutModelTest, CutsByMeasuredTimes) {
  std::shared_ptr<Model> model;
  InitRecording deferred = DeferInit(kSeed, [&] { model = Gpt2()(); });
  const std::vector<double> seconds = ProfileLayers(model, deferred, at::zeros({2, 8}, at::kLong));
  EXPECT_EQ(seconds.size(), 8u);
  for (const double each : seconds) EXPECT_GT(each, 0);
  for (const auto& [name, tensor] : TensorsOf(*model)) {
    EXPECT_FALSE(HasMemory(tensor)) << name;
    EXPECT_TRUE(deferred.deferred(tensor)) << name;
    EXPECT_FALSE(tensor.grad().defined()) << name;
  }
  const StageParts parts =
      CutModel(model, std::move(deferred), Stages(2, "profile"), 0, {7, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_THAT(parts.parts[0], StartsWith("layer 0, "));
  EXPECT_THAT(parts.parts[1], StartsWith("layers 1 to 7, "));
}

// ---- Models of users ----

at::Tensor Ones(int64_t size) { return at::ones({size}); }

struct Scale : nn::Module {
  explicit Scale(at::Tensor weight) { scale = register_parameter("scale", std::move(weight)); }
  at::Tensor scale;
};

// A model in which `body` has its own parameter and contains `inner`, and `last` shares the tensor
// of `first`.
struct Nested : Model {
  Nested() {
    body = register_module("body", std::make_shared<Scale>(Ones(2)));
    inner = body->register_module("inner", std::make_shared<Scale>(Ones(3)));
    body->register_buffer("table", at::zeros({4}));
    first = register_module("first", std::make_shared<Scale>(Ones(5)));
    last = register_module("last", std::make_shared<Scale>(first->scale));
  }
  at::Tensor forward(const at::Tensor& x) override { return x; }
  std::vector<ModelLayer> Layers() override {
    const auto same = [](const at::Tensor& x) { return x; };
    std::vector<ModelLayer> layers = {{"inner", {inner}, same}, {"first", {first}, same}};
    if (!leave_out) layers.push_back({"body", {body}, same});
    layers.push_back({"last", {last}, same});
    if (stranger) layers.push_back({"stranger", {std::make_shared<Scale>(Ones(1))}, same});
    return layers;
  }
  bool leave_out = false, stranger = false;
  std::shared_ptr<Scale> body, inner, first, last;
};

TEST(PipelineCutModelTest, KeepsTensorsOfContainerOnStageThatListsIt) {
  const Make make = [] { return std::make_shared<Nested>(); };
  const auto names = [&](int stage) {
    return NamesOf(*CutOne(make, Stages(4, "uniform"), stage).parts.module);
  };
  EXPECT_THAT(names(0), ElementsAre("body.inner.scale"));
  EXPECT_THAT(names(2), ElementsAre("body.scale", "body.inner.scale", "body.table"));
  using Tied = std::pair<std::string, std::vector<int>>;
  const CutStage listed = CutOne(make, Stages(4, "uniform"), 2);
  EXPECT_THAT(TiedOf(listed.parts), ElementsAre(Tied("body.inner.scale", {0, 2})));
}

TEST(PipelineCutModelTest, NamesSharedTensorAfterItsFirstModule) {
  const Make make = [] { return std::make_shared<Nested>(); };
  const CutStage last = CutOne(make, Stages(4, "uniform"), 3);
  EXPECT_THAT(NamesOf(*last.parts.module), ElementsAre("first.scale", "last.scale"));
  using Tied = std::pair<std::string, std::vector<int>>;
  EXPECT_THAT(TiedOf(last.parts), ElementsAre(Tied("first.scale", {1, 3})));
  EXPECT_THAT(TiedOf(CutOne(make, Stages(4, "uniform"), 1).parts),
              ElementsAre(Tied("first.scale", {1, 3})));
}

struct Whole : Model {
  at::Tensor forward(const at::Tensor& x) override { return x; }
};

TEST(PipelineCutModelTest, RejectsModelsWithoutCompleteLayers) {
  ExpectRefused([] { CutOne([] { return std::make_shared<Whole>(); }, Stages(1), 0); },
                ExitCode::kBadInput, HasSubstr("implement Layers()"));
  ExpectRefused(
      [] {
        CutOne(
            [] {
              auto model = std::make_shared<Nested>();
              model->leave_out = true;
              return model;
            },
            Stages(1), 0);
      },
      ExitCode::kBadInput, StartsWith("no layer of the model reads body.scale"));
  ExpectRefused(
      [] {
        CutOne(
            [] {
              auto model = std::make_shared<Nested>();
              model->stranger = true;
              return model;
            },
            Stages(1), 0);
      },
      ExitCode::kBadInput, StartsWith("layer 4 (stranger) lists a module that is not registered"));
}

}  // namespace
}  // namespace dslaunch::pipeline_cut_model_test
