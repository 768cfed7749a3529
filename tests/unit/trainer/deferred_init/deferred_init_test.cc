#include "dslaunch/deferred_init.h"

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "tests/support/own_memory.h"
#include "trainer/base/train_error.h"
#include "trainer/families/cnn/cnn_config.h"
#include "trainer/families/decoder/decoder_config.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/families/make_model.h"
#include "trainer/families/mlp/mlp_config.h"
#include "trainer/families/plugin/plugin_config.h"
#include "trainer/families/resnet18/resnet18_config.h"

namespace dslaunch {
namespace {

using testing::HasSubstr;
using torch::nn::Module;

// A module constructed by a function. Its registered tensors are compared.
class Built : public Module {
 public:
  explicit Built(const std::function<void(Built&)>& construct) { construct(*this); }
  using Module::register_buffer;
  using Module::register_module;
  using Module::register_parameter;
};

std::vector<std::pair<std::string, at::Tensor>> TensorsOf(const Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

at::Tensor GeneratorState() { return at::detail::getDefaultCPUGenerator().get_state(); }

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return false;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

using Make = std::function<std::shared_ptr<Module>()>;

// Constructs the module twice, in memory and deferred, and compares all tensors and the generator's
// state.
void ExpectSame(const Make& make, uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  at::manual_seed(seed);
  const std::shared_ptr<Module> eager = make();
  const at::Tensor state_after = GeneratorState();
  const auto expected = TensorsOf(*eager);

  at::manual_seed(seed + 1);
  std::shared_ptr<Module> module;
  InitRecording recording = DeferInit(seed, [&] { module = make(); });
  const auto named = TensorsOf(*module);
  ASSERT_EQ(named.size(), expected.size());
  std::vector<at::Tensor> wanted;
  for (size_t i = 0; i < named.size(); ++i) {
    const auto& [name, tensor] = named[i];
    SCOPED_TRACE(name);
    EXPECT_EQ(name, expected[i].first);
    EXPECT_TRUE(recording.deferred(tensor));
    EXPECT_EQ(tensor.sizes(), expected[i].second.sizes());
    EXPECT_EQ(tensor.strides(), expected[i].second.strides());
    EXPECT_EQ(tensor.dtype(), expected[i].second.dtype());
    EXPECT_EQ(tensor.requires_grad(), expected[i].second.requires_grad());
    EXPECT_TRUE(tensor.is_leaf());
    EXPECT_TRUE(tensor.is_cpu());
    wanted.push_back(tensor);
  }
  std::vector<int> times(wanted.size());
  recording.Replay(wanted, [&](size_t index, const at::Tensor& values) {
    ++times[index];
    EXPECT_FALSE(recording.deferred(values));
    EXPECT_TRUE(SameBits(values, expected[index].second)) << named[index].first;
  });
  EXPECT_EQ(times, std::vector<int>(wanted.size(), 1));
  EXPECT_TRUE(at::equal(GeneratorState(), state_after));
}

void ExpectSame(const Make& make) {
  for (const uint64_t seed : {1, 12345}) ExpectSame(make, seed);
}

void ExpectSame(const std::function<void(Built&)>& construct) {
  ExpectSame(Make([&] { return std::make_shared<Built>(construct); }));
}

TEST(DeferredInitTest, MatchesBuiltInModels) {
  const Gpt2Config gpt2{
      .vocab_size = 37, .n_positions = 8, .n_embd = 12, .n_layer = 2, .n_head = 3, .n_inner = {}};
  DecoderConfig decoder;
  decoder.model_type = DecoderConfig::Type::kQwen3;
  decoder.vocab_size = 37;
  decoder.hidden_size = decoder.intermediate_size = 12;
  decoder.num_hidden_layers = 2;
  decoder.num_attention_heads = 3;
  decoder.max_position_embeddings = 8;
  decoder.pad_token_id = 3;
  const struct {
    ModelConfig config;
    std::vector<int64_t> input_shape;
  } cases[] = {{MlpConfig{20, 10}, {28}},
               {CnnConfig{}, {1, 28, 28}},
               {Resnet18Config{5}, {3, 32, 32}},
               {gpt2, {8}},
               {decoder, {8}}};
  for (const auto& c : cases) ExpectSame([&] { return MakeModel(c.config, c.input_shape); });
}

TEST(DeferredInitTest, MatchesModelsOfPlugins) {
  ExpectSame([] {
    return MakeModel(PluginConfig{DSLAUNCH_TEST_PLUGIN, R"({"depth": 2, "width": 12})"},
                     {1, 28, 28});
  });
}

TEST(DeferredInitTest, MatchesModulesOfLibTorch) {
  namespace nn = torch::nn;
  ExpectSame([](Built& m) {
    m.register_module("linear", nn::Linear(5, 7));
    m.register_module("bilinear", nn::Bilinear(3, 4, 5));
    m.register_module("conv1", nn::Conv1d(3, 4, 3));
    m.register_module("conv3", nn::Conv3d(3, 4, 3));
    m.register_module("transposed", nn::ConvTranspose2d(3, 4, 3));
    m.register_module("batch_norm", nn::BatchNorm2d(4));
    m.register_module("instance_norm",
                      nn::InstanceNorm1d(nn::InstanceNorm1dOptions(4).affine(true)));
    m.register_module("group_norm", nn::GroupNorm(2, 4));
    m.register_module("layer_norm", nn::LayerNorm(nn::LayerNormOptions({4, 5})));
    m.register_module("prelu", nn::PReLU());
    m.register_module("embedding", nn::Embedding(nn::EmbeddingOptions(11, 3).padding_idx(2)));
    m.register_module("bag", nn::EmbeddingBag(7, 3));
    m.register_module("lstm", nn::LSTM(nn::LSTMOptions(4, 5).num_layers(2).bidirectional(true)));
    m.register_module("gru", nn::GRU(4, 5));
    m.register_module("cell", nn::LSTMCell(4, 5));
    m.register_module("attention", nn::MultiheadAttention(8, 2));
    m.register_module("encoder",
                      nn::TransformerEncoder(nn::TransformerEncoderOptions(
                          nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16), 2)));
    m.register_module("transformer",
                      nn::Transformer(nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(16)));
  });
}

TEST(DeferredInitTest, MatchesFunctionsOfTorchInit) {
  namespace init = torch::nn::init;
  ExpectSame([](Built& m) {
    const auto parameter = [&](const std::string& name, at::IntArrayRef shape) {
      return m.register_parameter(name, torch::empty(shape));
    };
    init::xavier_uniform_(parameter("xavier_uniform", {30, 4}));
    init::xavier_normal_(parameter("xavier_normal", {3, 4}));
    init::kaiming_normal_(parameter("kaiming", {3, 4, 3, 3}));
    init::orthogonal_(parameter("orthogonal", {6, 4}));
    init::orthogonal_(parameter("orthogonal_wide", {4, 6}), 2);
    init::eye_(parameter("eye", {3, 4}));
    init::dirac_(parameter("dirac", {3, 3, 3}));
    init::constant_(parameter("constant", {3}), 0.5);
    const at::NoGradGuard no_grad;
    at::Tensor rows = parameter("rows", {6, 5});
    rows.zero_();
    rows.narrow(0, 1, 3).normal_(0, 2);
    at::Tensor halves = parameter("halves", {40, 10});
    halves.zero_();
    halves.narrow(1, 0, 5).uniform_(-1, 1);
    halves.t().select(0, 7).fill_(3);
    parameter("scaled", {100}).normal_().mul_(0.02).clamp_(-0.03, 0.03);
    // The same operations as Python's trunc_normal_.
    parameter("truncated", {50}).uniform_(-0.9, 0.9).erfinv_().mul_(1.4).add_(0.1).clamp_(-2, 2);
    const at::Tensor list = parameter("list", {5});
    for (const at::Tensor& part : list.split(2)) part.normal_();
    m.register_parameter("drawn", torch::randn({20}));
    m.register_parameter("uniform", torch::rand({3, 3}) * 2 - 1);
    m.register_parameter("integers", torch::randint(100, {20}, torch::kLong), false);
    m.register_parameter("double", torch::randn({20}, torch::kDouble).to(torch::kFloat));
    m.register_parameter("half", torch::randn({20}).to(torch::kHalf));
    m.register_parameter("like", torch::randn_like(list));
    m.register_parameter("cloned", list.clone());
    m.register_parameter("transposed", torch::randn({3, 4}).t());
    m.register_parameter("permuted", torch::randn({3, 4, 5}).permute({2, 0, 1}).contiguous());
    m.register_parameter("stacked", torch::stack({torch::randn({3}), torch::zeros({3})}));
    m.register_parameter("catted", torch::cat({torch::randn({3}), torch::ones({2})}));
    m.register_parameter("scalar", torch::tensor(2.5));
    m.register_parameter("log", torch::ones({}) * std::log(1 / 0.07));
  });
}

TEST(DeferredInitTest, MatchesComputedBuffers) {
  ExpectSame([](Built& m) {
    m.register_buffer("mask", torch::ones({5, 5}).tril().view({1, 1, 5, 5}));
    m.register_buffer("causal", torch::triu(torch::full({5, 5}, -INFINITY), 1));
    m.register_buffer("where", torch::where(torch::ones({4, 4}, torch::kBool).tril(),
                                            torch::zeros({}), torch::full({}, -1e9)));
    m.register_buffer("filled", torch::zeros({4, 4}).masked_fill(
                                    torch::ones({4, 4}).triu(1).to(torch::kBool), -1e9));
    m.register_buffer("positions", torch::arange(7).expand({1, -1}));
    m.register_buffer("mean", torch::tensor({0.485, 0.456, 0.406}).view({3, 1, 1}));
    // The sines and cosines of a Transformer's positions.
    const at::Tensor position = torch::arange(0, 10, torch::kFloat).unsqueeze(1);
    const at::Tensor rate =
        torch::exp(torch::arange(0, 6, 2, torch::kFloat) * (-std::log(10000.0) / 6));
    at::Tensor table = torch::zeros({10, 6});
    using torch::indexing::None;
    using torch::indexing::Slice;
    table.index_put_({Slice(), Slice(0, None, 2)}, torch::sin(position * rate));
    table.index_put_({Slice(), Slice(1, None, 2)}, torch::cos(position * rate));
    m.register_buffer("table", table.unsqueeze(0));
    // Rotary frequencies.
    m.register_buffer("rotary", torch::outer(torch::arange(8, torch::kFloat),
                                             1 / torch::pow(10000, torch::arange(0, 6, 2) / 6.0)));
    m.register_buffer("complex", torch::polar(torch::ones({3}), torch::arange(3, torch::kFloat)));
    m.register_buffer("drops", torch::linspace(0, 0.1, 12));
    m.register_buffer("both", torch::cat({position, position}, 1));
    m.register_buffer("steps", torch::tensor(0, torch::kLong));
  });
}

// LibTorch has no shape functions for these operations, so they run to determine the shapes.
TEST(DeferredInitTest, MatchesResultsWithoutShapeFunctions) {
  ExpectSame([](Built& m) {
    const at::Tensor order = torch::randperm(9);
    m.register_buffer("order", order);
    m.register_buffer("permuted", torch::randn({9}).index_select(0, order));
    m.register_buffer("lower", torch::tril_indices(4, 4));
    m.register_buffer("where", torch::where(torch::ones({4}, torch::kBool).expand({3, 4}),
                                            torch::randn({4}), torch::zeros({})));
    m.register_buffer("bernoulli", torch::bernoulli(torch::full({30}, 0.5)));
    // Networks often determine their number of features by a forward pass.
    auto conv = m.register_module("conv", torch::nn::Conv2d(1, 2, 3));
    const at::Tensor features = conv->forward(torch::zeros({1, 1, 8, 8})).flatten(1);
    m.register_module("fc", torch::nn::Linear(features.size(1), 3));
    m.register_buffer("features", features.detach());
    m.register_buffer("dropped", torch::dropout(torch::ones({50}), 0.5, true));
  });
}

TEST(DeferredInitTest, CopiesRealTensors) {
  ExpectSame([](Built& m) {
    std::vector<float> numbers = {1, 2, 3, 4};
    const at::Tensor blob = torch::from_blob(numbers.data(), {2, 2});
    EXPECT_EQ(blob.sum().item<float>(), 10) << "its values are known";
    const at::NoGradGuard no_grad;
    const at::Tensor copied = m.register_parameter("copied", torch::empty({2, 2}));
    copied.copy_(blob);
    const at::Tensor sum = m.register_parameter("sum", torch::randn({2, 2}));
    sum.add_(blob);
    m.register_parameter("scaled", torch::randn({2, 2}) * blob[1][0]);
    numbers.assign(4, -1);  // changed now and freed at the end of the constructor
  });
  // A tensor that was created outside of the constructor is not deferred.
  const at::Tensor outside = torch::randn({3});
  std::shared_ptr<Module> module;
  InitRecording recording = DeferInit(1, [&] {
    module = std::make_shared<Built>([&](Built& m) { m.register_parameter("outside", outside); });
  });
  EXPECT_FALSE(recording.deferred(module->parameters()[0]));
  at::Tensor taken;
  recording.Replay(module->parameters(), [&](size_t, const at::Tensor& values) { taken = values; });
  EXPECT_TRUE(taken.is_same(module->parameters()[0]));
}

TEST(DeferredInitTest, MatchesTiedAndConvertedModules) {
  ExpectSame([](Built& m) {
    auto embedding = m.register_module("embedding", torch::nn::Embedding(11, 4));
    auto head =
        m.register_module("head", torch::nn::Linear(torch::nn::LinearOptions(4, 11).bias(false)));
    head->weight = embedding->weight;
    m.register_buffer("view", embedding->weight.detach().narrow(0, 2, 3));
  });
  ExpectSame([](Built& m) {
    m.register_module("linear", torch::nn::Linear(3, 4));
    m.register_module("norm", torch::nn::BatchNorm1d(4));
    m.to(torch::kBFloat16);
  });
  ExpectSame(Make([] {
    const auto linear = std::make_shared<torch::nn::LinearImpl>(3, 4);
    return std::dynamic_pointer_cast<Module>(linear->clone());
  }));
}

TEST(DeferredInitTest, KeepsTiedWeightsTied) {
  torch::nn::Linear a{nullptr}, b{nullptr};
  InitRecording recording = DeferInit(3, [&] {
    a = torch::nn::Linear(3, 3);
    b = torch::nn::Linear(3, 3);
    b->weight = a->weight;
  });
  EXPECT_TRUE(a->weight.is_same(b->weight));
  std::vector<at::Tensor> values(3);
  recording.Replay({b->weight, a->weight, b->bias},
                   [&](size_t i, const at::Tensor& taken) { values[i] = taken; });
  EXPECT_TRUE(at::equal(values[0], values[1]));
}

TEST(DeferredInitTest, ReplaysOnlyWantedTensors) {
  torch::manual_seed(7);
  const torch::nn::Linear first(8, 8), second(8, 8);
  torch::nn::Linear a{nullptr}, b{nullptr};
  InitRecording recording = DeferInit(7, [&] {
    a = torch::nn::Linear(8, 8);
    b = torch::nn::Linear(8, 8);
  });
  recording.Replay({b->weight}, [&](size_t index, const at::Tensor& values) {
    EXPECT_EQ(index, 0u);
    EXPECT_TRUE(SameBits(values, second->weight));
  });
  EXPECT_THROW(recording.Replay({a->weight}, [](size_t, const at::Tensor&) {}), TrainError);
}

TEST(DeferredInitTest, TensorsAreOrdinaryOnceTheyHaveMemory) {
  torch::nn::Linear linear{nullptr};
  InitRecording recording = DeferInit(7, [&] { linear = torch::nn::Linear(3, 2); });
  EXPECT_THROW(linear(torch::ones({1, 3})), c10::Error);
  EXPECT_THROW(linear->weight.data_ptr(), c10::Error);
  EXPECT_THROW(linear->bias.sum().item(), c10::Error);
  std::vector<at::Tensor> parameters = linear->parameters();
  recording.Replay(parameters, [&](size_t index, const at::Tensor& values) {
    parameters[index].set_data(values);
  });
  EXPECT_FALSE(recording.deferred(linear->weight));
  linear(torch::ones({1, 3})).sum().backward();
  EXPECT_TRUE(at::equal(linear->weight.grad(), torch::ones({2, 3})));
}

std::string Refusal(const std::function<void()>& construct) {
  std::string message;
  try {
    DeferInit(1, construct);
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    message = error.what();
    EXPECT_THAT(message, HasSubstr("build the model in memory"));
  }
  EXPECT_EQ(torch::ones({2}).sum().item<float>(), 2) << "the thread is as it was";
  return message;
}

TEST(DeferredInitTest, RejectsOperationsThatReadValues) {
  EXPECT_EQ(Refusal([] { torch::ones({2}); }), "");
  EXPECT_THAT(Refusal([] { torch::linspace(0, 1, 3)[1].item<float>(); }), HasSubstr("item()"));
  EXPECT_THAT(Refusal([] {
                torch::nn::init::sparse_(torch::empty({10, 4}), 0.5);
              }),
              HasSubstr("item()"));
  EXPECT_THAT(Refusal([] { torch::ones({2}).data_ptr<float>(); }), HasSubstr("data_ptr()"));
  EXPECT_THAT(Refusal([] {
                const at::Tensor ones = torch::ones({2});
                ones.accessor<float, 1>();
              }),
              HasSubstr("data_ptr()"));
  EXPECT_THAT(Refusal([] { std::ostringstream() << torch::ones({2}); }), HasSubstr("data_ptr()"));
  EXPECT_THAT(Refusal([] { torch::equal(torch::ones({2}), torch::ones({2})); }),
              HasSubstr("aten::equal"));
  EXPECT_THAT(Refusal([] { torch::nonzero(torch::ones({2})); }), HasSubstr("aten::nonzero"));
  EXPECT_THAT(Refusal([] { torch::multinomial(torch::ones({2}), 1); }),
              HasSubstr("aten::multinomial"));
}

TEST(DeferredInitTest, RejectsUnrepeatableRandomNumbers) {
  EXPECT_THAT(Refusal([] {
                at::Generator generator = at::detail::createCPUGenerator(5);
                torch::empty({3}).normal_(0, 1, generator);
              }),
              HasSubstr("aten::normal_ with its own random generator"));
  EXPECT_EQ(Refusal([] { torch::empty({3}).normal_(0, 1, at::detail::getDefaultCPUGenerator()); }),
            "");
  EXPECT_THAT(Refusal([] { torch::manual_seed(1); }), HasSubstr("seeds the random generator"));
  EXPECT_THAT(Refusal([] {
                torch::manual_seed(1);
                torch::randn({3});
              }),
              HasSubstr("seeds the random generator"));
  at::Tensor outside = torch::zeros({3});
  EXPECT_THAT(Refusal([&] { outside.normal_(); }), HasSubstr("aten::normal_"));
  EXPECT_THAT(Refusal([&] { outside.copy_(torch::ones({3})); }), HasSubstr("aten::copy_"));
  EXPECT_TRUE(at::equal(outside, torch::zeros({3})));
}

TEST(DeferredInitTest, RejectsOtherDevicesAndResize) {
  EXPECT_THAT(Refusal([] { torch::empty({3}, torch::kMeta); }), HasSubstr("the device meta"));
  EXPECT_THAT(Refusal([] { torch::empty({3}).resize_({4}); }), HasSubstr("aten::resize_"));
}

TEST(DeferredInitTest, RejectsResultWithAnotherShape) {
  at::Tensor eye;
  InitRecording recording = DeferInit(1, [&] {
    eye = torch::empty({2, 2});
    torch::eye_out(eye, 5);  // enlarges the tensor
  });
  try {
    recording.Replay({eye}, [](size_t, const at::Tensor&) { FAIL(); });
    FAIL();
  } catch (const TrainError& error) {
    EXPECT_THAT(error.what(), HasSubstr("aten::eye whose result has another shape"));
  }
}

TEST(DeferredInitTest, PropagatesErrorsOfConstructor) {
  const auto failing = [] {
    torch::ones({2});
    throw std::out_of_range("mine");
  };
  EXPECT_THROW(DeferInit(1, failing), std::out_of_range);
  EXPECT_THROW(DeferInit(1, [] { torch::ones({2}).view({3}); }), c10::Error);
  EXPECT_EQ(torch::ones({2}).sum().item<float>(), 2);
  EXPECT_THROW(DeferInit(1, [] { DeferInit(2, [] {}); }), TrainError);
}

// Counts the bytes of live CPU tensors that were allocated after its construction.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : real_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, 100); }
  ~CountingAllocator() override { c10::SetCPUAllocator(real_, 100); }

  c10::DataPtr allocate(size_t bytes) override {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    auto* block = new Block{this, bytes, real_->allocate(bytes)};
    return {block->data.get(), block, &Free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  size_t live() const { return live_; }
  size_t peak() const { return peak_; }
  void Restart() { peak_ = live_; }

 private:
  struct Block {
    CountingAllocator* owner;
    size_t bytes;
    c10::DataPtr data;
  };
  static void Free(void* context) {
    auto* const block = static_cast<Block*>(context);
    block->owner->live_ -= block->bytes;
    delete block;
  }

  c10::Allocator* real_;
  size_t live_ = 0, peak_ = 0;
};

TEST(DeferredInitTest, KeepsOneParameterInMemoryAtATime) {
  // The model initializes each convolution twice, the second time after all were created.
  std::shared_ptr<Module> model;
  CountingAllocator allocator;
  {
    InitRecording recording = DeferInit(1, [&] {
      model = MakeModel(Resnet18Config{10}, {3, 32, 32});
    });
    size_t largest = 0;
    for (const at::Tensor& tensor : model->parameters())
      largest = std::max(largest, tensor.nbytes());
    ASSERT_EQ(largest, 512u * 512 * 9 * 4);
    EXPECT_LT(allocator.peak(), 64u << 10) << "while nothing is to be in memory";
    allocator.Restart();
    int taken = 0;
    recording.Replay(model->parameters(), [&](size_t, const at::Tensor&) { ++taken; });
    EXPECT_EQ(taken, 62);
    EXPECT_GE(allocator.peak(), largest);
    EXPECT_LT(allocator.peak(), largest + (64u << 10));
  }
  model.reset();
  EXPECT_EQ(allocator.live(), 0u);
}

TEST(DeferredInitTest, ConstructsModelLargerThanMemory) {
  const Gpt2Config config{.vocab_size = 50257,
                          .n_positions = 1024,
                          .n_embd = 16384,
                          .n_layer = 96,
                          .n_head = 128,
                          .n_inner = {}};
  const int64_t before = OwnMemoryKib("VmRSS");
  std::shared_ptr<Module> model;
  const InitRecording recording = DeferInit(1, [&] { model = MakeModel(config, {1024}); });
  int64_t parameters = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    EXPECT_TRUE(recording.deferred(parameter));
    parameters += parameter.numel();
  }
  EXPECT_GT(parameters, 300'000'000'000) << "1.2 TB";
  EXPECT_LT(OwnMemoryKib("VmRSS") - before, 64 << 10);
}

}  // namespace
}  // namespace dslaunch
