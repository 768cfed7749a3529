#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <tuple>

#include "tests/unit/trainer/expect_refused.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/explain.h"
#include "trainer/pipeline/stage.h"

namespace dslaunch::pipeline_stage_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
namespace nn = torch::nn;

at::Tensor GeneratorState() { return at::detail::getDefaultCPUGenerator().get_state(); }

std::map<std::string, at::Tensor> ParametersOf(const nn::Module& module) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& item : module.named_parameters()) parameters.emplace(item.key(), item.value());
  return parameters;
}

PipelineConfig Stages(int64_t stages, const std::string& partition = "uniform",
                      int64_t virtual_stages = 1) {
  return {.stages = stages, .partition = partition, .virtual_stages = virtual_stages};
}

std::vector<StageParts> BuildAll(const PipelineModule& module, const PipelineConfig& config,
                                 const std::vector<double>& seconds = {}) {
  std::vector<StageParts> stages;
  for (int stage = 0; stage < config.stages; ++stage) {
    stages.push_back(BuildStage(module, config, stage, seconds));
  }
  return stages;
}

Tensors RunChunk(const std::vector<StageLayer>& chunk, Tensors x) {
  for (const StageLayer& layer : chunk) x = layer.forward(x);
  return x;
}

// Runs a micro-batch through all chunks of all stages and returns the output.
at::Tensor RunAll(const std::vector<StageParts>& stages, const at::Tensor& input) {
  Tensors x = {input};
  for (size_t chunk = 0; chunk < stages[0].chunks.size(); ++chunk) {
    for (const StageParts& stage : stages) x = RunChunk(stage.chunks[chunk], x);
  }
  return x[0];
}

// Expects `action` to throw an exception of exactly the type `Exception`.
template <class Exception>
void ExpectThrows(const std::function<void()>& action, const testing::Matcher<std::string>& text) {
  try {
    action();
    ADD_FAILURE() << "accepted";
  } catch (const c10::Error& error) {
    EXPECT_EQ(typeid(error), typeid(Exception));
    EXPECT_THAT(std::string(error.what_without_backtrace()), text);
  } catch (const std::exception& error) {
    EXPECT_EQ(typeid(error), typeid(Exception));
    EXPECT_THAT(std::string(error.what()), text);
  }
}

std::vector<std::vector<size_t>> IndicesOf(const StageParts& stage) {
  std::vector<std::vector<size_t>> chunks;
  for (const auto& layers : stage.chunks) {
    chunks.emplace_back();
    for (const StageLayer& layer : layers) chunks.back().push_back(layer.index);
  }
  return chunks;
}

PipelineModule SixLayers() {
  return {.layers = {LayerSpec<nn::Linear>(6, 8),
                     LayerFunction([](const at::Tensor& x) { return at::relu(x); }),
                     LayerSpec<nn::Linear>(8, 8),
                     LayerSpec<nn::LayerNorm>(nn::LayerNormOptions({8})),
                     LayerSpec<nn::Linear>(8, 8), LayerSpec<nn::Linear>(nn::LinearOptions(8, 3))}};
}

TEST(PipelineStageTest, KeepsValuesNamesAndResultsForEveryCut) {
  const PipelineModule module = SixLayers();
  at::manual_seed(7);
  const at::Tensor state = GeneratorState();
  const StageParts whole = BuildStage(module, Stages(1), 0);
  EXPECT_TRUE(at::equal(GeneratorState(), state));
  const auto expected = ParametersOf(*whole.module);
  {
    nn::Sequential named(nn::Linear(6, 8), nn::Identity(), nn::Linear(8, 8),
                         nn::LayerNorm(nn::LayerNormOptions({8})), nn::Linear(8, 8),
                         nn::Linear(8, 3));
    ASSERT_EQ(expected.size(), named->parameters().size());
    for (const auto& item : named->named_parameters()) {
      EXPECT_TRUE(expected.contains(item.key())) << item.key();
    }
  }
  EXPECT_FALSE(at::equal(expected.at("2.weight"), expected.at("4.weight")));
  const at::Tensor x = at::rand({5, 6});
  const at::Tensor y = RunChunk(whole.chunks[0], {x})[0];

  for (const auto& [stages, virtual_stages] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 2}, {2, 1}, {3, 1}, {3, 2}, {2, 3}, {6, 1}}) {
    for (const std::string partition : {"uniform", "parameters"}) {
      SCOPED_TRACE(std::to_string(stages) + " stages, " + std::to_string(virtual_stages) +
                   " chunks, " + partition);
      at::manual_seed(7);
      const auto all = BuildAll(module, Stages(stages, partition, virtual_stages));
      EXPECT_TRUE(at::equal(GeneratorState(), state));
      std::map<std::string, at::Tensor> together;
      for (const StageParts& stage : all) {
        EXPECT_FALSE(stage.deferred.has_value());
        EXPECT_TRUE(stage.cut.tied.empty());
        for (const auto& [name, parameter] : ParametersOf(*stage.module)) {
          EXPECT_TRUE(together.emplace(name, parameter).second) << name << " is on two stages";
          EXPECT_TRUE(at::equal(parameter, expected.at(name))) << name;
        }
      }
      EXPECT_EQ(together.size(), expected.size());
      EXPECT_TRUE(at::equal(RunAll(all, x), y));
    }
  }
  at::manual_seed(8);
  const StageParts other = BuildStage(module, Stages(1), 0);
  EXPECT_FALSE(at::equal(ParametersOf(*other.module).at("0.weight"), expected.at("0.weight")));
}

TEST(PipelineStageTest, SeedLayersMatchesDeepSpeed) {
  PipelineConfig config = Stages(2);
  config.seed_layers = true;
  const auto all = BuildAll(SixLayers(), config);
  at::manual_seed(1234 + 4);
  const nn::Linear expected(8, 8);
  EXPECT_TRUE(at::equal(ParametersOf(*all[1].module).at("4.weight"), expected->weight));
}

TEST(PipelineStageTest, AssignsChunksToStagesInTurn) {
  const auto all = BuildAll(SixLayers(), Stages(2, "uniform", 3));
  EXPECT_THAT(IndicesOf(all[0]), ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(4)));
  EXPECT_THAT(IndicesOf(all[1]), ElementsAre(ElementsAre(1), ElementsAre(3), ElementsAre(5)));
  EXPECT_EQ(all[0].chunks[1][0].name, "layer 2 (torch::nn::LinearImpl)");
  EXPECT_THAT(all[0].parts,
              ElementsAre("layer 0", "layer 1", "layer 2", "layer 3", "layer 4", "layer 5"));
  EXPECT_THAT(BuildStage(SixLayers(), Stages(2, "parameters"), 0).parts,
              ElementsAre("layers 0 to 2, 128 parameters", "layers 3 to 5, 115 parameters"));
}

TEST(PipelineStageTest, PartitionMatchesTypesOfLayers) {
  for (const StageParts& stage : BuildAll(SixLayers(), Stages(2, "type:LINEAR"))) {
    size_t linears = 0;
    for (const auto& child : stage.module->children()) {
      if (child->as<nn::Linear>() != nullptr) ++linears;
    }
    EXPECT_EQ(linears, 2u);
  }
}

// A module that records its instances when they are built, and the largest number that existed at
// the same time.
struct Watched : nn::Module {
  explicit Watched(int64_t width) {
    weight = register_parameter("weight", at::rand({width}));
    built.push_back(weight);
    ++living;
    most = std::max(most, living);
  }
  ~Watched() override { --living; }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight;
  static inline std::vector<at::Tensor> built;
  static inline int living = 0, most = 0;
};

struct Thrower : nn::Module {
  Thrower() { throw std::logic_error("built on the wrong stage"); }
  at::Tensor forward(const at::Tensor& x) { return x; }
};

TEST(PipelineStageTest, ConstructsOnlyOwnLayers) {
  const PipelineModule module{.layers = {LayerSpec<Watched>(3), LayerSpec<Watched>(3),
                                         LayerSpec<Thrower>(), LayerSpec<Thrower>()}};
  for (const char* partition : {"uniform", "type:watched|thrower", "profile"}) {
    Watched::built.clear();
    BuildStage(module, Stages(2, partition), 0, {1, 1, 1, 1});
    EXPECT_EQ(Watched::built.size(), 2u) << partition;
    ExpectThrows<std::runtime_error>(
        [&] {
          BuildStage(module, Stages(2, partition), 1, {1, 1, 1, 1});
        },
        StartsWith(
            "stage 1, layer 2 (dslaunch::pipeline_stage_test::Thrower): built on the wrong stage"));
  }
}

TEST(PipelineStageTest, CountsLayersOfOtherStagesWithoutTheirMemory) {
  const PipelineModule module{.layers = {LayerSpec<Watched>(3), LayerSpec<Watched>(5),
                                         LayerSpec<Watched>(7), LayerSpec<Watched>(9)}};
  Watched::built.clear();
  Watched::most = 0;
  const StageParts last = BuildStage(module, Stages(2, "parameters"), 1);
  EXPECT_THAT(last.parts, ElementsAre("layers 0 to 2, 15 parameters", "layer 3, 9 parameters"));
  ASSERT_EQ(Watched::built.size(), 5u) << "each once to count, and the last";
  for (size_t i = 0; i < 4; ++i) EXPECT_THROW(Watched::built[i].data_ptr(), c10::Error);
  EXPECT_NE(Watched::built[4].data_ptr(), nullptr);
  EXPECT_EQ(Watched::most, 1) << "one at a time";
}

PipelineModule TiedLayers() {
  const auto head = [](nn::EmbeddingImpl& embedding, const at::Tensor& x) {
    return at::linear(x, embedding.weight);
  };
  return {.layers = {TiedLayerSpec<nn::Linear>("outer", 4, 4),
                     LayerFunction([](const at::Tensor& x) { return x.argmax(-1); }),
                     TiedLayerSpec<nn::Embedding>("words", 11, 4), LayerSpec<nn::Linear>(4, 4),
                     TiedLayerSpecWith<nn::Embedding>("words", head, 11, 4),
                     LayerSpec<nn::Linear>(11, 4), TiedLayerSpec<nn::Linear>("outer", 4, 4)}};
}

TEST(PipelineStageTest, BuildsTiedLayersAsOneModulePerStage) {
  at::manual_seed(3);
  const StageParts whole = BuildStage(TiedLayers(), Stages(1), 0);
  EXPECT_TRUE(whole.cut.tied.empty());
  const auto expected = ParametersOf(*whole.module);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : expected) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("0.bias", "0.weight", "2.weight", "3.bias", "3.weight", "5.bias",
                                 "5.weight"));

  // The stages have layers 0 1 2, 3 4, and 5 6.
  const auto all = BuildAll(TiedLayers(), Stages(3));
  ASSERT_THAT(IndicesOf(all[1]), ElementsAre(ElementsAre(3, 4)));
  for (const StageParts& stage : all) {
    for (const auto& [name, parameter] : ParametersOf(*stage.module)) {
      EXPECT_TRUE(at::equal(parameter, expected.at(name))) << name;
    }
  }
  const auto tied_of = [](const StageParts& stage) {
    std::vector<std::pair<std::string, std::vector<int>>> tied;
    for (const TiedTensor& item : stage.cut.tied) tied.emplace_back(item.name, item.stages);
    return tied;
  };
  using Tied = std::pair<std::string, std::vector<int>>;
  const Tied weight("0.weight", {0, 2}), bias("0.bias", {0, 2}), words("2.weight", {0, 1});
  EXPECT_THAT(tied_of(all[0]), ElementsAre(weight, bias, words));
  EXPECT_THAT(tied_of(all[1]), ElementsAre(words));
  EXPECT_THAT(tied_of(all[2]), ElementsAre(weight, bias));
  const at::Tensor x = at::rand({2, 5, 4});
  EXPECT_TRUE(at::equal(RunAll(all, x), RunChunk(whole.chunks[0], {x})[0]));
  EXPECT_THAT(BuildStage(TiedLayers(), Stages(1, "parameters"), 0).parts,
              ElementsAre("layers 0 to 6, 132 parameters"))
      << "each weight once";
}

TEST(PipelineStageTest, RejectsTiedLayersOfDifferentTypes) {
  const PipelineModule module{.layers = {TiedLayerSpec<nn::Linear>("key", 4, 4),
                                         TiedLayerSpec<nn::Embedding>("key", 4, 4)}};
  ExpectRefused([&] { BuildStage(module, Stages(1), 0); }, ExitCode::kBadInput,
                AllOf(HasSubstr("layer 0 (torch::nn::LinearImpl)"),
                      HasSubstr("layer 1 (torch::nn::EmbeddingImpl)"), HasSubstr("key \"key\"")));
}

TEST(PipelineStageTest, PassesSeveralTensorsBetweenLayers) {
  const PipelineModule module{
      .layers = {LayerFunction([](const at::Tensor& x) { return std::tuple(x + 1, x * 2, x > 0); }),
                 LayerFunction([](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
                   return Tensors{a + b, c};
                 }),
                 LayerFunction([](const Tensors& all) { return all[0] * all[1]; })}};
  const at::Tensor x = at::tensor({-1.0, 2.0});
  EXPECT_TRUE(at::equal(RunAll(BuildAll(module, Stages(3)), x), at::tensor({0.0, 7.0})));
}

// ---- Errors ----

PipelineLayer Returning(const Tensors& outputs) {
  return LayerFunction([outputs](const Tensors&) { return outputs; });
}

void Throw(const std::function<void()>& thrower) {
  const auto layer = LayerFunction([thrower](const at::Tensor& x) {
    thrower();
    return x;
  });
  const PipelineModule module{.layers = {LayerSpec<nn::Identity>(), layer}};
  BuildStage(module, Stages(2), 1).chunks[0][0].forward({at::ones({1})});
}

TEST(PipelineStageTest, NamesLayerThatReturnsNoTensor) {
  const auto run = [](PipelineLayer layer) {
    const PipelineModule module{.layers = {LayerSpec<nn::Identity>(), std::move(layer)}};
    BuildStage(module, Stages(2), 1).chunks[0][0].forward({at::ones({1})});
  };
  ExpectRefused([&] { run(Returning({})); }, ExitCode::kBadInput,
                "stage 1, layer 1 (function): returns no tensor; a layer must return at "
                "least one");
  ExpectRefused(
      [&] {
        run(Returning({at::ones({1}), at::Tensor()}));
      },
      ExitCode::kBadInput,
      StartsWith("stage 1, layer 1 (function): output 2 of 2 is an undefined tensor"));
  ExpectRefused(
      [&] { run(LayerFunction([](const at::Tensor& a, const at::Tensor&) { return a; })); },
      ExitCode::kBadInput,
      StartsWith("stage 1, layer 1 (function): function takes 2 tensors but gets 1"));
}

TEST(PipelineStageTest, RejectsSecondInputOfLinearLayer) {
  const PipelineModule module{.layers = {LayerSpec<nn::Linear>(3, 2)}};
  const StageParts parts = BuildStage(module, Stages(1), 0);
  const at::Tensor x = at::ones({1, 3});
  ExpectRefused(
      [&] {
        parts.chunks[0][0].forward({x, x});
      },
      ExitCode::kBadInput,
      StartsWith("stage 0, layer 0 (torch::nn::LinearImpl): torch::nn::LinearImpl takes "
                 "1 tensor but gets 2"));
}

TEST(PipelineStageTest, RejectsMoreStagesThanLayers) {
  for (const char* partition : {"uniform", "parameters"}) {
    ExpectRefused([&] { BuildStage(SixLayers(), Stages(7, partition), 0); }, ExitCode::kBadInput,
                  AllOf(HasSubstr("6 layers"), HasSubstr("7")));
  }
}

TEST(PipelineStageTest, AddsLayerToExceptionsAndKeepsTheirTypes) {
  const std::string where = "stage 1, layer 1 (function): ";
  ExpectRefused([] { Throw([] { throw TrainError(ExitCode::kIo, "no file"); }); }, ExitCode::kIo,
                where + "no file");
  ExpectThrows<c10::Error>([] { Throw([] {
                                  at::mm(at::ones({2, 3}), at::ones({2, 3}));
                                }); },
                           StartsWith(where + "mat1 and mat2 shapes cannot be multiplied"));
  ExpectThrows<std::runtime_error>([] { Throw([] { throw std::out_of_range("mine"); }); },
                                   where + "mine");
  ExpectThrows<std::runtime_error>([] { Throw([] { throw std::bad_alloc(); }); },
                                   testing::ResultOf(IsOutOfMemory, true));
  ExpectRefused(
      [&] {
        const PipelineModule module{.layers = {LayerSpec<nn::Linear>(-1, 2)}};
        try {
          BuildStage(module, Stages(1), 0);
        } catch (const c10::Error& error) {
          throw TrainError(ExitCode::kBadInput, error.what_without_backtrace());
        }
      },
      ExitCode::kBadInput, StartsWith("stage 0, layer 0 (torch::nn::LinearImpl): "));
}

TEST(PipelineStageTest, KeepsErrorsOfOtherRanksUnchanged) {
  const std::string lost = "[gloo/transport/tcp/pair.cc:500] Connection closed by peer";
  ExpectThrows<std::runtime_error>([&] { Throw([&] { throw std::runtime_error(lost); }); }, lost);
  ExpectThrows<c10::DistError>([&] { Throw([&] { throw c10::DistError(lost); }); }, lost);
  for (const ExitCode code : {ExitCode::kUnavailable, ExitCode::kTimedOut}) {
    ExpectRefused([&] { Throw([&] { throw TrainError(code, "rank 3 is gone"); }); }, code,
                  "rank 3 is gone");
  }
}

struct Doubled : nn::LinearImpl {
  using LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& x) { return 2 * LinearImpl::forward(x); }
};

TEST(PipelineStageTest, LinearLayersComputeTheirForward) {
  const PipelineModule module{
      .layers = {LayerSpec<nn::Linear>(4, 3), LayerSpec<Doubled>(3, 3),
                 LayerSpec<nn::Linear>(nn::LinearOptions(3, 2).bias(false))}};
  const StageParts parts = BuildStage(module, Stages(1), 0);
  const auto p = ParametersOf(*parts.module);
  const at::Tensor x = at::rand({2, 5, 4});
  const at::Tensor first = at::matmul(x, p.at("0.weight").t()) + p.at("0.bias");
  const at::Tensor second = 2 * (at::matmul(first, p.at("1.weight").t()) + p.at("1.bias"));
  EXPECT_TRUE(at::allclose(RunChunk(parts.chunks[0], {x})[0],
                           at::matmul(second, p.at("2.weight").t()), 1e-5));
}

TEST(PipelineStageTest, TypeNameReturnsNameAsWrittenInCode) {
  using pipeline_detail::TypeName;
  EXPECT_EQ(TypeName(typeid(nn::LinearImpl)), "torch::nn::LinearImpl");
  EXPECT_EQ(TypeName(typeid(Watched)), "dslaunch::pipeline_stage_test::Watched");
  EXPECT_EQ(TypeName(typeid(std::vector<std::vector<std::string>>)),
            "std::vector<std::vector<std::string>>");
  EXPECT_EQ(TypeName(typeid(std::map<std::string, int>)), "std::map<std::string, int>");
}

// ---- Times ----

using namespace std::chrono_literals;

class SleepInBackward : public torch::autograd::Function<SleepInBackward> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    std::this_thread::sleep_for(30ms);
    return gradients;
  }
};

TEST(PipelineStageTest, ProfilesForwardAndBackwardOneLayerAtATime) {
  int calls = 0;
  const PipelineModule module{
      .layers = {LayerSpec<nn::Embedding>(11, 4), LayerSpec<Watched>(4),
                 LayerFunction([](at::Tensor x) {
                   std::this_thread::sleep_for(30ms);
                   return x.relu_();
                 }),
                 LayerFunction([](const at::Tensor& x) { return SleepInBackward::apply(x); }),
                 LayerSpec<Watched>(4), LayerFunction([&calls](const at::Tensor& x) {
                   if (calls++ == 0) std::this_thread::sleep_for(400ms);
                   return x.argmax(-1);
                 })}};
  const at::Tensor state = GeneratorState();
  Watched::most = 0;
  const at::Tensor tokens = at::zeros({2, 3}, at::kLong);
  const std::vector<double> seconds = ProfileLayers(module, {tokens});
  EXPECT_TRUE(at::equal(GeneratorState(), state));
  EXPECT_EQ(Watched::most, 1);
  ASSERT_EQ(seconds.size(), 6u);
  for (const double each : seconds) EXPECT_GT(each, 0);
  EXPECT_GE(seconds[2], 0.03);
  EXPECT_GE(seconds[3], 0.03);
  EXPECT_LT(seconds[5], 0.4) << "the least of several";

  const auto all = BuildAll(module, Stages(2, "profile"), {1, 1, 1, 1, 1, 5});
  EXPECT_THAT(all[0].parts, ElementsAre("layers 0 to 4", "layer 5"));
}

TEST(PipelineStageTest, ProfilingRequiresSampleAndNamesFailedLayer) {
  const PipelineModule module{.layers = {LayerSpec<nn::Identity>(), Returning({})}};
  ExpectRefused([&] { ProfileLayers(module, Tensors{}); }, ExitCode::kBadInput,
                HasSubstr("PipelineModule::sample"));
  ExpectRefused([&] { ProfileLayers(module, {at::ones({1})}); }, ExitCode::kBadInput,
                StartsWith("measuring layer 1 (function): returns no tensor"));
}

}  // namespace
}  // namespace dslaunch::pipeline_stage_test
