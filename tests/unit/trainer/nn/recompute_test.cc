// Tests that recomputed parts give the same results and use no more memory than documented.
#include "dslaunch/recompute.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>

#include <optional>

#include "dslaunch/autocast.h"
#include "tests/unit/trainer/expect_refused.h"
#include "trainer/parallel/gradient_arrivals.h"

namespace dslaunch::recompute_test {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
namespace nn = torch::nn;

constexpr int64_t kWidth = 12;

struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t width = kWidth)
      : norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        in(register_module("in", nn::Linear(width, 4 * width))),
        out(register_module("out", nn::Linear(4 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    return x + at::dropout(out(at::gelu(in(norm(x)))), 0.3, is_training());
  }
  nn::LayerNorm norm;
  nn::Linear in, out;
  int runs = 0;
};
TORCH_MODULE(Block);

// Maps tokens to logits. The head shares the embedding's weight.
struct Net : nn::Module {
  Net() {
    embedding = register_module("embedding", nn::Embedding(20, kWidth));
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Block()));
    }
  }
  at::Tensor Embed(const at::Tensor& tokens) {
    return at::dropout(embedding(tokens), 0.2, is_training());
  }
  at::Tensor Head(const at::Tensor& x) { return at::linear(x, embedding->weight); }

  nn::Embedding embedding{nullptr};
  std::vector<Block> blocks;
};

std::shared_ptr<Net> MakeNet() {
  at::manual_seed(3);
  return std::make_shared<Net>();
}

at::Tensor Tokens() { return at::arange(15).mul(7).remainder(20).view({3, 5}); }

at::Tensor GeneratorState() { return at::detail::getDefaultCPUGenerator().get_state(); }

struct Results {
  at::Tensor output, state;
  std::map<std::string, at::Tensor> gradients;
};

using Forward = std::function<at::Tensor(const at::Tensor& input)>;

// Runs a forward pass of `net` through `forward` and a backward pass. Returns output and gradients.
Results Train(Net& net, const Forward& forward) {
  net.zero_grad();
  at::manual_seed(11);
  Results results;
  results.output = forward(Tokens());
  at::rand({3});  // draws other random numbers in between
  results.output.square().mean().backward();
  results.state = GeneratorState();
  for (const auto& item : net.named_parameters()) {
    if (item.value().grad().defined()) results.gradients[item.key()] = item.value().grad().clone();
  }
  return results;
}

// Returns a function that runs the blocks from `begin` to `end` in sequence.
Forward Part(Net& net, size_t begin, size_t end) {
  return [&net, begin, end](at::Tensor x) {
    for (size_t i = begin; i < end; ++i) x = net.blocks[i](x);
    return x;
  };
}

Forward Whole(Net& net) {
  return [&net](const at::Tensor& tokens) {
    return net.Head(Part(net, 0, net.blocks.size())(net.Embed(tokens)));
  };
}

Forward Again(const Forward& forward) {
  return [forward](const at::Tensor& input) { return Recompute(forward, input); };
}

void ExpectSame(const Results& got, const Results& wanted) {
  EXPECT_TRUE(at::equal(got.output, wanted.output));
  EXPECT_TRUE(at::equal(got.state, wanted.state)) << "of the random generator";
  ASSERT_EQ(got.gradients.size(), wanted.gradients.size());
  for (const auto& [name, gradient] : wanted.gradients) {
    EXPECT_TRUE(at::equal(got.gradients.at(name), gradient)) << name;
  }
}

TEST(RecomputeTest, MatchesPlainPassWithSharedWeight) {
  const auto net = MakeNet();
  const Results wanted = Train(*net, Whole(*net));
  EXPECT_EQ(wanted.gradients.size(), net->parameters().size());
  ExpectSame(Train(*net, Again(Whole(*net))), wanted);

  const Forward first =
      Again([&](const at::Tensor& tokens) { return Part(*net, 0, 1)(net->Embed(tokens)); });
  ExpectSame(Train(*net,
                   [&](const at::Tensor& tokens) {
                     const at::Tensor x = Again(Part(*net, 1, 3))(first(tokens));
                     return net->Head(Part(*net, 3, 4)(x));
                   }),
             wanted);
}

TEST(RecomputeTest, AcceptsInputThatIsOutput) {
  const at::Tensor weight = at::arange(4, at::kFloat).requires_grad_(true);
  const auto layer = [&](const Tensors& inputs) {
    return Tensors{inputs[0], inputs[0] * weight, inputs[1]};
  };
  const auto gradients = [&](bool again) {
    weight.mutable_grad().reset();
    const at::Tensor x = at::ones({3, 4}).requires_grad_(true), number = at::ones({2}, at::kLong);
    const Tensors inputs = {x * 1, number};
    const Tensors outputs = again ? Recompute(layer, inputs) : layer(inputs);
    (outputs[0].square() + outputs[1]).sum().backward();
    return Tensors{x.grad(), weight.grad()};
  };
  const Tensors wanted = gradients(false), got = gradients(true);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << i;
}

TEST(RecomputeTest, MatchesPlainPassWhenNested) {
  const auto net = MakeNet();
  const Results wanted = Train(*net, Whole(*net));
  ExpectSame(Train(*net, Again([&](const at::Tensor& tokens) {
               const Forward inner =
                   Again([&](const at::Tensor& x) { return Again(Part(*net, 1, 2))(x); });
               at::Tensor x = Again(Part(*net, 0, 1))(net->Embed(tokens));
               x = Again(Part(*net, 2, 4))(inner(x));
               return net->Head(x);
             })),
             wanted);
}

TEST(RecomputeTest, RepeatsSeedsSetInside) {
  const auto net = MakeNet();
  const auto train = [&](bool again) {
    return Train(*net, [&](const at::Tensor& tokens) {
      at::Tensor x = net->Embed(tokens);
      for (size_t i = 0; i < net->blocks.size(); ++i) {
        const Forward layer = [&, i](const at::Tensor& input) {
          at::manual_seed(100 + i);
          return net->blocks[i](input);
        };
        x = again ? Recompute(layer, x) : layer(x);
      }
      return x;
    });
  };
  ExpectSame(train(true), train(false));
}

TEST(RecomputeTest, RestoresAutocastOfForwardPass) {
  const auto net = MakeNet();
  const auto train = [&](bool again) {
    return Train(*net, [&](const at::Tensor& tokens) {
      const AutocastScope autocast(at::kBFloat16);
      const Forward part = Part(*net, 0, 2);
      at::Tensor x = Part(*net, 0, 1)(net->Embed(tokens));
      x = again ? Recompute(part, x) : part(x);
      return Part(*net, 0, 1)(x);
    });
  };
  const Results wanted = train(false);
  const Results got = train(true);
  EXPECT_TRUE(at::equal(got.output, wanted.output));
  ASSERT_EQ(got.gradients.size(), wanted.gradients.size());
  for (const auto& [name, gradient] : wanted.gradients) {
    EXPECT_EQ(got.gradients.at(name).scalar_type(), at::kFloat);
    if (name.starts_with("block1")) {
      EXPECT_TRUE(at::equal(got.gradients.at(name), gradient)) << name;
    } else {  // the gradient of three readers, which autocast's cache of weights sums in 16 bit
      EXPECT_LT((got.gradients.at(name) - gradient).abs().max().item<double>(),
                1e-2 * gradient.abs().max().item<double>())
          << name;
    }
  }
}

TEST(RecomputeTest, AccumulatesGradientOfSharedParameterOnce) {
  const at::Tensor weight = at::ones({4}).requires_grad_();
  GradientArrivals arrivals({{"weight", weight}}, [](size_t) {});
  arrivals.ExpectOnce();
  int hooks = 0;
  weight.register_hook([&](const at::Tensor& gradient) {
    ++hooks;
    return gradient * 10;
  });
  at::Tensor x = at::full({4}, 2.0).requires_grad_();
  at::Tensor y = x;
  for (int i = 0; i < 3; ++i) {
    y = Recompute([&](const at::Tensor& input) { return input * weight; }, y);
  }
  (y * weight).sum().backward();
  EXPECT_TRUE(arrivals.complete());
  EXPECT_EQ(hooks, 1);
  EXPECT_TRUE(at::equal(weight.grad(), at::full({4}, 80.0))) << weight.grad();
  EXPECT_TRUE(at::equal(x.grad(), at::ones({4})));
}

TEST(RecomputeTest, HandlesInputsAndOutputsOfAnyKind) {
  const at::Tensor weight = at::full({3}, 0.5).requires_grad_();
  const at::Tensor unused = at::ones({3}).requires_grad_();
  GradientArrivals arrivals({{"weight", weight}, {"unused", unused}}, [](size_t) {});
  const auto gradients = [&](bool again) {
    const at::Tensor a = at::arange(3, at::kFloat).requires_grad_();
    const at::Tensor b = at::arange(3, at::kDouble).requires_grad_();
    const at::Tensor frozen = at::ones({3});
    const at::Tensor index = at::arange(3).flip(0);
    const auto forward = [&](const Tensors& in) -> Tensors {
      return {in[0] * weight,
              in[0],
              in[3] + 1,
              in[1].exp().to(at::kFloat),
              in[2] * 2,
              weight,
              in[0].index({in[3]}) * unused,
              in[0]};
    };
    Tensors out =
        again ? Recompute(forward, {a, b, frozen, index}) : forward({a, b, frozen, index});
    EXPECT_TRUE(at::equal(out[2], index + 1));
    EXPECT_FALSE(out[2].requires_grad() || out[4].requires_grad());
    out[0].add_(1);
    weight.mutable_grad().reset();
    arrivals.ExpectOnce();
    ((out[0] * out[1] + out[3] * out[5]).sum() + (out[7] * 3).sum()).backward();
    EXPECT_TRUE(arrivals.arrived(0));
    EXPECT_FALSE(arrivals.arrived(1)) << "only an unused output depends on it";
    return Tensors{out[0].detach(), a.grad(), b.grad(), weight.grad()};
  };
  const Tensors wanted = gradients(false), got = gradients(true);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(got[i].dtype(), wanted[i].dtype());
    EXPECT_TRUE(at::equal(got[i], wanted[i])) << i << ": " << got[i] << wanted[i];
  }
}

TEST(RecomputeTest, RunsForwardAgainOnlyForBackward) {
  Block block;
  const at::Tensor x = at::ones({2, kWidth});
  const Forward forward = [&](const at::Tensor& input) { return block(input); };
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(Recompute(forward, x).requires_grad());
  }
  EXPECT_EQ(block->runs, 1);
  const at::Tensor y = Recompute(forward, x);
  EXPECT_EQ(block->runs, 2);
  y.sum().backward();
  EXPECT_EQ(block->runs, 3);
}

TEST(RecomputeTest, ComputesGradientsOfChosenTensors) {
  Block block;
  const at::Tensor x = at::ones({2, kWidth}).requires_grad_();
  block->eval();
  const auto of = [&](const at::Tensor& y) {
    return torch::autograd::grad({y.square().sum()}, {x, block->in->bias});
  };
  const Tensors wanted = of(block(x));
  const Tensors got = of(Recompute([&](const at::Tensor& input) { return block(input); }, x));
  EXPECT_TRUE(at::equal(got[0], wanted[0]));
  EXPECT_TRUE(at::equal(got[1], wanted[1]));
  for (const at::Tensor& parameter : block->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(RecomputeTest, AllowsSecondBackwardWithRetainedGraph) {
  const at::Tensor weight = at::full({3}, 2.0).requires_grad_();
  const at::Tensor y =
      Recompute([&](const at::Tensor& x) { return (x * weight).exp(); }, at::ones({3})).sum();
  y.backward({}, /*retain_graph=*/true);
  const at::Tensor once = weight.grad().clone();
  y.backward();
  EXPECT_TRUE(at::equal(weight.grad(), once * 2));
  ExpectRefused([&] { y.backward(); }, ExitCode::kBadInput, HasSubstr("second"));
}

TEST(RecomputeTest, RejectsForwardThatCannotBeRepeated) {
  const at::Tensor weight = at::ones({3}).requires_grad_();
  ExpectRefused(
      [&] {
        Recompute([&](const at::Tensor& x) { return x.clone().mul_(2) + at::Tensor(x).add_(1); },
                  at::ones({3}));
      },
      ExitCode::kBadInput, HasSubstr("changes its input 0 in place"));

  at::Tensor changed = at::ones({3});
  const at::Tensor late = Recompute([&](const at::Tensor& x) { return x * weight; }, changed);
  changed.add_(1);
  ExpectRefused([&] { late.sum().backward(); }, ExitCode::kBadInput,
                HasSubstr("input 0 was changed in place"));

  const at::Tensor elsewhere = weight * 2;
  ExpectRefused([&] { Recompute([&](const at::Tensor& x) { return x * elsewhere; }, weight); },
                ExitCode::kBadInput, HasSubstr("(MulBackward1)"));

  int runs = 0;
  const at::Tensor other = at::ones({3}).requires_grad_();
  const at::Tensor fickle = Recompute(
      [&](const at::Tensor& x) { return ++runs == 1 ? x * weight : x * other; }, at::ones({3}));
  ExpectRefused([&] { fickle.sum().backward(); }, ExitCode::kBadInput,
                HasSubstr("computed different results"));

  const at::Tensor y = Recompute([&](const at::Tensor& x) { return x * weight; }, at::ones({3}));
  ExpectRefused([&] { y.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true); },
                ExitCode::kBadInput, HasSubstr("create_graph"));
}

TEST(RecomputeTest, UpdatesRunningStatisticsOnce) {
  const at::Tensor x = at::randn({8, kWidth}).requires_grad_();
  const auto train = [&](bool again) {
    nn::BatchNorm1d norm(kWidth);
    const Forward forward = [&](const at::Tensor& input) { return norm(input).exp(); };
    x.mutable_grad().reset();
    (again ? Recompute(forward, x, norm->buffers()) : forward(x)).sum().backward();
    return Tensors{x.grad(), norm->running_mean, norm->running_var, norm->num_batches_tracked};
  };
  const Tensors wanted = train(false), got = train(true);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << i;
}

TEST(RecomputeTest, RestoresGeneratorAfterError) {
  const at::Tensor weight = at::ones({3}).requires_grad_();
  int runs = 0;
  const at::Tensor y = Recompute(
      [&](const at::Tensor& x) {
        if (++runs == 2) throw std::runtime_error("no");
        return at::dropout(x * weight, 0.5, true);
      },
      at::ones({3}));
  at::rand({1});
  const at::Tensor before = GeneratorState();
  EXPECT_THROW(y.sum().backward(), std::runtime_error);
  EXPECT_TRUE(at::equal(GeneratorState(), before));
}

// Counts the bytes that this thread allocates and has not freed, and their peak.
class Meter {
 public:
  Meter() : counts_(std::make_shared<Counts>()) {
    c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, counts_);
  }
  ~Meter() { c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE); }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
  int64_t live() const { return counts_->live; }
  int64_t peak() const { return counts_->peak; }

 private:
  struct Counts : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
      live += size;
      peak = std::max(peak, live);
    }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t live = 0, peak = 0;
  };
  std::shared_ptr<Counts> counts_;
};

struct Peak {
  int64_t kept, peak;  // bytes between the passes, and at the peak
};

Peak Measure(int layers, int interval, int64_t rows, int64_t width) {
  std::vector<Block> blocks;
  for (int i = 0; i < layers; ++i) blocks.emplace_back(Block(width));
  // Gradients are allocated before the measurement, so that they are not counted.
  for (Block& block : blocks) {
    for (const at::Tensor& p : block->parameters()) p.mutable_grad() = at::zeros_like(p);
  }
  const at::Tensor input = at::ones({rows, width}).requires_grad_();
  const Meter meter;
  at::Tensor loss;
  {
    at::Tensor x = input;
    const int step = std::max(interval, 1);
    for (int i = 0; i < layers; i += step) {
      const Forward part = [&, i](at::Tensor y) {
        for (int j = i; j < i + step; ++j) y = blocks[static_cast<size_t>(j)](y);
        return y;
      };
      x = interval == 0 ? part(x) : Recompute(part, x);
    }
    loss = x.sum();
  }
  const int64_t kept = meter.live();
  loss.backward();
  return {kept, meter.peak()};
}

TEST(RecomputeTest, KeepsOnlyInputsAndOnePart) {
  constexpr int kLayers = 16;
  constexpr int64_t kRows = 512, kColumns = 32, kTensor = kRows * kColumns * 4;
  const Peak without = Measure(kLayers, 0, kRows, kColumns);
  const int64_t layer = without.kept / kLayers;  // bytes that one layer keeps
  EXPECT_GT(layer, 8 * kTensor);
  for (const int interval : {1, 2, 4, 8, 16}) {
    const Peak with = Measure(kLayers, interval, kRows, kColumns);
    const int64_t inputs = kLayers / interval * kTensor;
    EXPECT_LE(with.kept, inputs + kLayers * 8192) << "every " << interval;
    // The peak contains one recomputed part, and a few gradients as wide as its inner layer.
    EXPECT_LE(with.peak, inputs + interval * layer + 3 * 4 * kTensor) << "every " << interval;
    EXPECT_GE(with.peak, interval * layer) << "every " << interval;
  }
}

}  // namespace
}  // namespace dslaunch::recompute_test
