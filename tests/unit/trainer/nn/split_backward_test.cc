// Tests that deferred weight gradients equal immediate weight gradients.
#include "trainer/nn/split_backward.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "dslaunch/autocast.h"
#include "dslaunch/recompute.h"
#include "trainer/parallel/gradient_arrivals.h"

namespace dslaunch::split_backward_test {
namespace {

using Tensors = std::vector<at::Tensor>;
using Layer = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& bias)>;

at::Tensor PlainConv1D(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(1);
  const at::Tensor rows = x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2);
  return at::addmm(bias, rows, weight).view(sizes);
}

struct Case {
  std::string name;
  at::Tensor x, weight, bias, gradient;
};

at::Tensor Numbers(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randn(sizes, at::kDouble).to(dtype);
}

// Returns tensors with the same values in different memory orders, including `tensor` itself.
Tensors Layouts(const at::Tensor& tensor) {
  Tensors layouts = {tensor};
  if (tensor.dim() > 1) {
    layouts.push_back(tensor.transpose(0, -1).contiguous().transpose(0, -1));
    layouts.push_back(tensor.transpose(-2, -1).contiguous().transpose(-2, -1));
  }
  if (tensor.dim() > 2) layouts.push_back(tensor.transpose(0, 1).contiguous().transpose(0, 1));
  layouts.push_back(at::stack({tensor, tensor}, -1).select(-1, 0));
  return layouts;
}

// Returns inputs of every kind for a layer. `transposed`: whether weights have sizes {in, out}
// instead of {out, in}.
std::vector<Case> Cases(bool transposed, bool with_bias) {
  at::manual_seed(1);
  std::vector<Case> cases;
  const std::vector<std::vector<int64_t>> batches = {{}, {5}, {1}, {2, 3}, {3, 1}, {2, 3, 2}, {0}};
  const std::vector<std::pair<int64_t, int64_t>> features = {{4, 6}, {1, 3}, {7, 1}, {33, 65}};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto& [in, out] : features) {
      for (std::vector<int64_t> sizes : batches) {
        sizes.push_back(in);
        const at::Tensor x = Numbers(sizes, dtype);
        sizes.back() = out;
        const at::Tensor gradient = Numbers(sizes, dtype);
        const at::Tensor weight =
            Numbers(transposed ? at::IntArrayRef{out, in} : at::IntArrayRef{in, out}, dtype);
        const at::Tensor bias = with_bias ? Numbers({out}, dtype) : at::Tensor();
        const auto add = [&](const at::Tensor& x_layout, const at::Tensor& weight_layout,
                             const at::Tensor& gradient_layout) {
          cases.push_back({c10::str(dtype, " x ", x_layout.sizes(), " strides ", x_layout.strides(),
                                    ", weight strides ", weight_layout.strides(),
                                    ", gradient strides ", gradient_layout.strides()),
                           x_layout, weight_layout, bias, gradient_layout});
        };
        for (const at::Tensor& layout : Layouts(x)) {
          add(layout, weight, gradient);
          add(layout, weight, Layouts(gradient).back());
        }
        for (const at::Tensor& layout : Layouts(weight)) add(x, layout, gradient);
        for (const at::Tensor& layout : Layouts(gradient)) add(x, weight, layout);
        add(x, weight, at::ones({}, dtype).expand(sizes));
      }
    }
  }
  return cases;
}

struct Needed {
  bool x = true, weight = true, bias = true;
};

// Returns the output of `layer` for `one`, and the gradients of x, weight and bias. `later`:
// receives deferred weight gradients; nullptr for immediate gradients.
Tensors ResultsOf(const Layer& layer, const Case& one, const Needed& needed,
                  WeightGradients* later) {
  // Views of leaves are used, so that x keeps its layout and is not a leaf itself.
  const at::Tensor x = one.x.detach().requires_grad_(needed.x);
  const at::Tensor weight = one.weight.detach().requires_grad_(needed.weight);
  const at::Tensor bias =
      one.bias.defined() ? one.bias.detach().requires_grad_(needed.bias) : at::Tensor();
  const at::Tensor y = layer(x, weight, bias);
  if (y.requires_grad()) {
    std::optional<DeferWeightGradients> scope;
    if (later != nullptr) scope.emplace(*later);
    y.backward(one.gradient);
  }
  if (later != nullptr) {
    if (needed.weight) {
      EXPECT_FALSE(later->empty()) << one.name;
      EXPECT_FALSE(weight.grad().defined()) << one.name;
      EXPECT_FALSE(bias.defined() && bias.grad().defined()) << one.name;
    }
    later->Compute();
    EXPECT_TRUE(later->empty());
  }
  return {y.detach(), x.grad(), weight.grad(), bias.defined() ? bias.grad() : at::Tensor()};
}

void ExpectSame(const Tensors& got, const Tensors& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(got[i].defined(), wanted[i].defined()) << what << ", tensor " << i;
    if (!wanted[i].defined()) continue;
    EXPECT_TRUE(at::equal(got[i], wanted[i])) << what << ", tensor " << i;
    EXPECT_EQ(got[i].scalar_type(), wanted[i].scalar_type()) << what << ", tensor " << i;
    EXPECT_EQ(got[i].strides(), wanted[i].strides()) << what << ", tensor " << i;
  }
}

void ExpectBitEqual(const Layer& layer, const Layer& plain, bool transposed, bool with_bias) {
  const std::vector<Needed> kinds = {{},
                                     {.x = false},
                                     {.bias = false},
                                     {.weight = false},
                                     {.x = false, .bias = false},
                                     {.x = false, .weight = false, .bias = false}};
  for (const Case& one : Cases(transposed, with_bias)) {
    for (const Needed& needed : kinds) {
      const std::string what =
          c10::str(one.name, ", needed ", needed.x, needed.weight, needed.bias);
      const Tensors wanted = ResultsOf(plain, one, needed, nullptr);
      ExpectSame(ResultsOf(layer, one, needed, nullptr), wanted, what);
      WeightGradients later;
      ExpectSame(ResultsOf(layer, one, needed, &later), wanted, what + ", deferred");
      if (testing::Test::HasFailure()) return;
    }
  }
}

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return ApplyLinear(x, weight, bias);
}
at::Tensor PlainLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x, weight, bias);
}

TEST(SplitBackwardTest, LinearMatchesAtLinearBitForBit) {
  ExpectBitEqual(Linear, PlainLinear, /*transposed=*/true, /*with_bias=*/true);
}
TEST(SplitBackwardTest, LinearWithoutBiasMatchesAtLinearBitForBit) {
  ExpectBitEqual(Linear, PlainLinear, /*transposed=*/true, /*with_bias=*/false);
}
TEST(SplitBackwardTest, Conv1DMatchesAddmmBitForBit) {
  ExpectBitEqual(&ApplyConv1D, PlainConv1D, /*transposed=*/false, /*with_bias=*/true);
}

// Large enough for oneDNN, whose bits differ from addmm's. Immediate and deferred gradients must
// still have the same bits.
TEST(SplitBackwardTest, LargeConv1DGivesSameBitsWhenDeferred) {
  at::manual_seed(2);
  const Case one = {"large", at::randn({2, 48, 128}), at::randn({128, 160}), at::randn({160}),
                    at::randn({2, 48, 160})};
  const Tensors got = ResultsOf(&ApplyConv1D, one, {}, nullptr);
  WeightGradients later;
  ExpectSame(ResultsOf(&ApplyConv1D, one, {}, &later), got, "deferred");
  Case exact = one;
  for (at::Tensor* tensor : {&exact.x, &exact.weight, &exact.bias, &exact.gradient}) {
    *tensor = tensor->to(at::kDouble);
  }
  const Tensors wanted = ResultsOf(PlainConv1D, exact, {}, nullptr);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i].to(at::kDouble), wanted[i], 1e-5, 1e-4)) << i;
  }
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(ApplyConv1D(one.x, one.weight, one.bias), got[0])) << "without training";
}

struct Parameters {
  at::Tensor first = at::randn({4, 3}).requires_grad_(),
             first_bias = at::randn({4}).requires_grad_(), scale = at::randn({4}).requires_grad_(),
             second = at::randn({4, 2}).requires_grad_(),
             second_bias = at::randn({2}).requires_grad_();
  std::vector<NamedTensor> named() const {
    return {{"first", first},
            {"first_bias", first_bias},
            {"scale", scale},
            {"second", second},
            {"second_bias", second_bias}};
  }
};

TEST(SplitBackwardTest, RunsHooksWhenGradientsArrive) {
  at::manual_seed(2);
  const Parameters p;
  std::vector<std::string> told;
  GradientArrivals arrivals(p.named(), [&](size_t i) { told.push_back(p.named()[i].name); });
  const at::Tensor x = at::randn({5, 3}).requires_grad_();
  const auto forward = [&] {
    const at::Tensor y = at::gelu(ApplyLinear(x, p.first, p.first_bias)) * p.scale;
    return ApplyConv1D(y, p.second, p.second_bias).square().sum();
  };
  forward().backward();
  Tensors wanted;
  for (const NamedTensor& parameter : p.named()) {
    wanted.push_back(parameter.tensor.grad());
    parameter.tensor.mutable_grad().reset();
  }
  const at::Tensor x_gradient = x.grad();
  x.mutable_grad().reset();

  told.clear();
  arrivals.ExpectOnce();
  WeightGradients later;
  {
    const DeferWeightGradients scope(later);
    forward().backward();
  }
  EXPECT_TRUE(at::equal(x.grad(), x_gradient));
  EXPECT_EQ(told, std::vector<std::string>{"scale"});
  EXPECT_FALSE(p.first.grad().defined());
  later.Compute();
  ASSERT_EQ(told.size(), 5U);
  EXPECT_TRUE(told[1].starts_with("second") && told[2].starts_with("second"));
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(at::equal(p.named()[i].tensor.grad(), wanted[i])) << p.named()[i].name;
  }
}

TEST(SplitBackwardTest, SumsGradientsOfWeightUsedTwice) {
  at::manual_seed(2);
  const at::Tensor weight = at::randn({4, 4}).requires_grad_();
  GradientArrivals arrivals({{"weight", weight}}, [](size_t) {});
  const auto forward = [&] {
    return ApplyLinear(ApplyLinear(at::ones({3, 4}), weight).relu(), weight).sum();
  };
  forward().backward();
  const at::Tensor wanted = weight.grad();
  weight.mutable_grad().reset();
  arrivals.ExpectOnce();
  WeightGradients later;
  {
    const DeferWeightGradients scope(later);
    forward().backward();
  }
  later.Compute();
  EXPECT_TRUE(at::equal(weight.grad(), wanted));
}

TEST(SplitBackwardTest, AccumulatesMicroBatches) {
  at::manual_seed(2);
  const at::Tensor weight = at::randn({4, 4}).requires_grad_();
  const at::Tensor a = at::randn({3, 4}), b = at::randn({3, 4});
  for (const at::Tensor& x : {a, b}) at::linear(x, weight).square().sum().backward();
  const at::Tensor wanted = weight.grad();
  weight.mutable_grad().reset();
  std::vector<WeightGradients> later(2);
  for (size_t i = 0; i < 2; ++i) {
    const DeferWeightGradients scope(later[i]);
    ApplyLinear(i == 0 ? a : b, weight).square().sum().backward();
  }
  for (WeightGradients& gradients : later) gradients.Compute();
  EXPECT_TRUE(at::equal(weight.grad(), wanted));
}

TEST(SplitBackwardTest, NestsScopes) {
  const at::Tensor weight = at::ones({2, 2}).requires_grad_();
  WeightGradients outer, inner;
  const auto backward = [&] { ApplyLinear(at::ones({1, 2}), weight).sum().backward(); };
  {
    const DeferWeightGradients scope(outer);
    {
      const DeferWeightGradients within(inner);
      backward();
    }
    EXPECT_TRUE(outer.empty());
    EXPECT_FALSE(inner.empty());
    backward();
    EXPECT_FALSE(outer.empty());
  }
  EXPECT_FALSE(weight.grad().defined());
  backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::ones({2, 2})));
}

TEST(SplitBackwardTest, ComputeFreesHeldTensors) {
  const at::Tensor weight = at::ones({2, 2}).requires_grad_();
  const at::Tensor x = at::ones({3, 2});
  const size_t before = x.storage().use_count();
  WeightGradients later;
  {
    const DeferWeightGradients scope(later);
    ApplyLinear(x, weight).sum().backward();
  }
  EXPECT_GT(x.storage().use_count(), before);
  later.Compute();
  EXPECT_EQ(x.storage().use_count(), before);
}

TEST(SplitBackwardTest, DoesNotDeferUnderAutocastOrForNonLeaves) {
  const at::Tensor leaf = at::randn({2, 3}).requires_grad_(), x = at::randn({4, 3});
  WeightGradients later;
  const DeferWeightGradients scope(later);
  {
    const AutocastScope autocast(at::kBFloat16);
    const at::Tensor y = ApplyLinear(x, leaf);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_EQ(ApplyConv1D(x, leaf.t(), at::zeros({2})).scalar_type(), at::kBFloat16);
    y.sum().backward();
  }
  EXPECT_TRUE(later.empty());
  EXPECT_TRUE(leaf.grad().defined());
  leaf.mutable_grad().reset();
  ApplyLinear(x, leaf * 2).sum().backward();
  EXPECT_TRUE(later.empty());
  EXPECT_TRUE(leaf.grad().defined());
}

TEST(SplitBackwardTest, ComputesGradientsOfGradients) {
  at::manual_seed(2);
  const at::Tensor weight = at::randn({4, 3}).requires_grad_(),
                   bias = at::randn({4}).requires_grad_(),
                   x = at::randn({2, 5, 3}).requires_grad_();
  const auto second = [&](const at::Tensor& y) {
    const Tensors first = torch::autograd::grad({y.square().sum()}, {x, weight, bias}, {},
                                                /*retain_graph=*/true, /*create_graph=*/true);
    at::Tensor sum = at::zeros({});
    for (const at::Tensor& gradient : first) sum = sum + gradient.square().sum();
    return torch::autograd::grad({sum}, {x, weight, bias});
  };
  const Tensors got = second(ApplyLinear(x, weight, bias));
  const Tensors wanted = second(at::linear(x, weight, bias));
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(at::allclose(got[i], wanted[i])) << i;
}

TEST(SplitBackwardTest, DefersInRecomputedPart) {
  at::manual_seed(2);
  const Parameters p;
  const at::Tensor x = at::randn({5, 3}).requires_grad_();
  const std::function<at::Tensor(const at::Tensor&)> part = [&](const at::Tensor& input) {
    const at::Tensor y = at::gelu(ApplyLinear(input, p.first, p.first_bias)) * p.scale;
    return ApplyConv1D(y, p.second, p.second_bias).square();
  };
  part(x).sum().backward();
  Tensors wanted = {x.grad()};
  x.mutable_grad().reset();
  for (const NamedTensor& parameter : p.named()) {
    wanted.push_back(parameter.tensor.grad());
    parameter.tensor.mutable_grad().reset();
  }
  WeightGradients later;
  {
    const DeferWeightGradients scope(later);
    Recompute(part, x).sum().backward();
  }
  EXPECT_FALSE(p.second.grad().defined());
  EXPECT_TRUE(p.scale.grad().defined());
  later.Compute();
  Tensors got = {x.grad()};
  for (const NamedTensor& parameter : p.named()) got.push_back(parameter.tensor.grad());
  ExpectSame(got, wanted, "again");
}

}  // namespace
}  // namespace dslaunch::split_backward_test
