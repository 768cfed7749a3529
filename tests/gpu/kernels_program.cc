// Compares the results of trainer/nn on the GPU of this process with LibTorch's operators in fp64
// on the CPU: kernels_program SEED [time].
// Uses the trainer's own kernels if there are any. Prints a line for each comparison, and exits
// with 1 if one deviates. `time` prints the time of a GPT-2 of 124 M parameters in these kernels,
// and in LibTorch's operators.
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dslaunch/dslaunch.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "trainer/device/fused_kernels.h"
#include "trainer/device/streams.h"
#include "trainer/nn/cross_entropy.h"
#include "trainer/nn/layer_norm.h"
#include "trainer/nn/rms_norm.h"
#include "trainer/nn/rotate_heads.h"
#include "trainer/nn/split_backward.h"
#include "trainer/nn/swiglu.h"

namespace {

using at::Tensor;

int failures = 0;

double Within(at::ScalarType type) {
  return type == at::kFloat ? 1e-5 : type == at::kHalf ? 1e-3 : 8e-3;
}

// Compares `ours`, from the GPU and in any type, with `theirs` in fp64. NaN in only one of them is
// also a failure.
void Compare(const std::string& what, at::ScalarType type, const Tensor& ours, const Tensor& theirs,
             double within = 0) {
  const Tensor found = ours.detach().to(at::kCPU, at::kDouble);
  const bool same_nans = found.isnan().equal(theirs.isnan());
  const Tensor difference = (found - theirs).nan_to_num(0), whole = theirs.nan_to_num(0);
  const double size = whole.norm().item<double>();
  const double deviation = difference.norm().item<double>() / (size == 0 ? 1 : size);
  const bool good =
      same_nans && deviation <= std::max(within, Within(type)) && found.sizes() == theirs.sizes();
  failures += good ? 0 : 1;
  std::printf("%-60s %-9s within %.0e%s\n", what.c_str(), c10::toString(type), deviation,
              good        ? ""
              : same_nans ? "   FAILED"
                          : "   FAILED: NaN");
}

std::string Name(const std::string& what, const Tensor& x) {
  return what + " " + c10::str(x.sizes());
}

struct Leaf {
  Tensor here, reference;  // on the GPU, and the same numbers in fp64 on the CPU
};

Leaf MakeLeaf(const Tensor& values, at::ScalarType type, c10::Device device) {
  const Tensor here = values.to(type);
  return {here.to(device).requires_grad_(), here.to(at::kDouble).requires_grad_()};
}

void CheckCrossEntropy(at::ScalarType type, int64_t rows, int64_t columns, c10::Device device) {
  Tensor values = at::randn({rows, columns}) * 4;
  if (columns > 64) {
    values.narrow(1, 16, 32).fill_(-INFINITY);  // masked elements
    values[0].mul_(10);
  }
  Tensor targets = at::randint(columns > 64 ? 16 : columns, {rows}, at::kLong);
  if (rows > 2) targets[1] = -100;
  for (const int64_t reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
    const Leaf logits = MakeLeaf(values, type, device);
    const Tensor loss = dslaunch::CrossEntropyOfLogits(logits.here, targets.to(device), reduction);
    const Tensor wanted = at::cross_entropy_loss(logits.reference, targets, {}, reduction);
    (loss * 64).backward();
    (wanted * 64).backward();
    Compare(Name("cross entropy", values), at::kFloat, loss, wanted.detach());
    Compare(Name("cross entropy, gradient", values), type, logits.here.grad(),
            logits.reference.grad());
  }
}

// Describes a normalization over the last dimension, and its parameters.
struct Normalization {
  std::string name;
  std::vector<std::pair<std::string, Leaf>> parameters;
  // Normalizes x + branch, or x if `branch` is undefined.
  std::function<dslaunch::NormalizedSum(const Tensor& x, const Tensor& branch)> ours;
  std::function<Tensor(const Tensor& sum)> reference;
  std::function<bool(const Tensor& x)> has_kernel;
};

// Checks a normalization. If `with_branch`, normalizes a sum and uses both results. Otherwise
// normalizes x, which is used again.
void CheckNormalization(const Normalization& norm, at::ScalarType type, int64_t rows,
                        int64_t columns, bool with_branch, c10::Device device) {
  const Leaf x = MakeLeaf(at::randn({rows, columns}) * 3 + 1, type, device);
  const Leaf branch = MakeLeaf(at::randn({rows, columns}), type, device);
  const Tensor gradient = at::randn({rows, columns}).to(type);
  const Tensor sum_gradient = at::randn({rows, columns}).to(type);
  const auto [sum, y] = norm.ours(x.here, with_branch ? branch.here : Tensor());
  // Has the sum's type, because its rounding affects all other results.
  const Tensor exact = with_branch ? x.reference + branch.reference : x.reference;
  const Tensor rounded = exact + (exact.to(type).to(at::kDouble) - exact).detach();
  const Tensor wanted = norm.reference(rounded);
  torch::autograd::backward({sum, y}, {sum_gradient.to(device), gradient.to(device)});
  torch::autograd::backward({rounded, wanted},
                            {sum_gradient.to(at::kDouble), gradient.to(at::kDouble)});
  const std::string what = (with_branch ? "sum and " : "") + norm.name;
  Compare(Name(what, gradient), type, y, wanted.detach());
  Compare(Name(what + ", gradient of x", gradient), type, x.here.grad(), x.reference.grad());
  if (with_branch) {
    Compare(Name(what + ", the sum", gradient), type, sum, rounded.detach());
    Compare(Name(what + ", gradient of the branch", gradient), type, branch.here.grad(),
            branch.reference.grad());
  }
  // LibTorch on CPUs sums in the type of the elements. No kernel supports this width.
  const double within = !norm.has_kernel(x.here) && type != at::kFloat ? 0.1 : 0;
  for (const auto& [name, parameter] : norm.parameters) {
    Compare(Name(what + ", gradient of the " + name, gradient), type, parameter.here.grad(),
            parameter.reference.grad(), within);
  }
}

void CheckLayerNorm(at::ScalarType type, int64_t rows, int64_t columns, bool with_branch,
                    c10::Device device) {
  torch::nn::LayerNorm layer(torch::nn::LayerNormOptions({columns}).eps(1e-5));
  const Leaf weight = MakeLeaf(at::rand({columns}) + 0.5, type, device);
  const Leaf bias = MakeLeaf(at::randn({columns}), type, device);
  layer->weight = weight.here;
  layer->bias = bias.here;
  CheckNormalization(
      {"layer norm",
       {{"weight", weight}, {"bias", bias}},
       [&](const Tensor& x, const Tensor& branch) {
         return dslaunch::AddAndNormalize(layer, x, branch);
       },
       [&](const Tensor& sum) {
         return at::layer_norm(sum, {columns}, weight.reference, bias.reference, 1e-5);
       },
       [](const Tensor& x) { return dslaunch::FusedKernelsFor(x)->HasLayerNorm(x); }},
      type, rows, columns, with_branch, device);
}

void CheckRmsNorm(at::ScalarType type, int64_t rows, int64_t columns, bool with_branch,
                  c10::Device device) {
  const Leaf weight = MakeLeaf(at::rand({columns}) + 0.5, type, device);
  CheckNormalization({"RMS norm",
                      {{"weight", weight}},
                      [&](const Tensor& x, const Tensor& branch) {
                        return dslaunch::AddAndRmsNorm(x, branch, weight.here, 1e-5);
                      },
                      [&](const Tensor& sum) {
                        return weight.reference * sum *
                               (sum.square().mean(-1, /*keepdim=*/true) + 1e-5).rsqrt();
                      },
                      [](const Tensor& x) { return dslaunch::FusedKernelsFor(x)->HasRmsNorm(x); }},
                     type, rows, columns, with_branch, device);
}

void CheckSwiGlu(at::ScalarType type, int64_t rows, int64_t columns, c10::Device device) {
  const Leaf gate = MakeLeaf(at::randn({rows, columns}) * 4, type, device);
  const Leaf up = MakeLeaf(at::randn({rows, columns}), type, device);
  const Tensor gradient = at::randn({rows, columns}).to(type);
  const Tensor y = dslaunch::ApplySwiGlu(gate.here, up.here);
  const Tensor wanted = at::silu(gate.reference) * up.reference;
  y.backward(gradient.to(device));
  wanted.backward(gradient.to(at::kDouble));
  Compare(Name("SwiGLU", gradient), type, y, wanted.detach());
  Compare(Name("SwiGLU, gradient of the gate", gradient), type, gate.here.grad(),
          gate.reference.grad());
  Compare(Name("SwiGLU, gradient of up", gradient), type, up.here.grad(), up.reference.grad());
}

// Checks a rotation of x, whose shape is [2, length, 3, width].
void CheckRotation(at::ScalarType type, int64_t length, int64_t width, c10::Device device) {
  const Leaf x = MakeLeaf(at::randn({2, length, 3, width}), type, device);
  const Tensor angles = at::randn({length, 1, width / 2});
  const Leaf cosines = MakeLeaf(angles.cos(), type, device);
  const Leaf sines = MakeLeaf(angles.sin(), type, device);
  const Tensor gradient = at::randn(x.here.sizes()).to(type);
  const Tensor y = dslaunch::RotateHeads(x.here, cosines.here.detach(), sines.here.detach());
  const Tensor c = cosines.reference.detach(), s = sines.reference.detach();
  const std::vector<Tensor> halves = x.reference.chunk(2, -1);
  const Tensor wanted = at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
  y.backward(gradient.to(device));
  wanted.backward(gradient.to(at::kDouble));
  Compare(Name("rotation", gradient), type, y, wanted.detach());
  Compare(Name("rotation, gradient", gradient), type, x.here.grad(), x.reference.grad());
}

void CheckBias(at::ScalarType type, int64_t rows, int64_t columns, c10::Device device) {
  const Leaf weight = MakeLeaf(at::randn({columns, 8}), type, device);
  const Leaf bias = MakeLeaf(at::randn({columns}), type, device);
  const Leaf x = MakeLeaf(at::randn({rows, 8}), type, device);
  const Tensor gradient = at::randn({rows, columns}).to(type);
  dslaunch::ApplyLinear(x.here, weight.here, bias.here).backward(gradient.to(device));
  at::linear(x.reference, weight.reference, bias.reference).backward(gradient.to(at::kDouble));
  Compare(Name("linear, gradient of the bias", gradient), type, bias.here.grad(),
          bias.reference.grad());
}

// Checks a linear layer of GPT-2 and the following operation: GELU, or the division into three
// equal parts.
void CheckAfterProduct(at::ScalarType type, int64_t rows, int64_t columns, c10::Device device) {
  const auto compare = [&](const std::string& what, const auto& ours, const auto& theirs) {
    const Leaf weight = MakeLeaf(at::randn({8, columns}), type, device);
    const Leaf bias = MakeLeaf(at::randn({columns}), type, device);
    const Leaf x = MakeLeaf(at::randn({rows, 8}), type, device);
    const Tensor gradient = at::randn({rows, columns}).to(type);
    const Tensor y = ours(x.here, weight.here, bias.here);
    const Tensor product = at::addmm(bias.reference, x.reference, weight.reference);
    // Has the product's type, because its rounding affects all other results.
    const Tensor rounded = product + (product.to(type).to(at::kDouble) - product).detach();
    const Tensor wanted = theirs(rounded);
    y.backward(gradient.to(device));
    wanted.backward(gradient.to(at::kDouble));
    Compare(Name(what, gradient), type, y, wanted.detach());
    Compare(Name(what + ", gradient of x", gradient), type, x.here.grad(), x.reference.grad());
    Compare(Name(what + ", gradient of the bias", gradient), type, bias.here.grad(),
            bias.reference.grad());
  };
  compare(
      "product and GELU",
      [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
        return dslaunch::ApplyConv1DAndGelu(x, weight, bias);
      },
      [](const Tensor& product) { return at::gelu(product, "tanh"); });
  if (columns % 3 != 0) return;
  const auto join = [](const auto& thirds) {
    return at::cat({thirds[2], thirds[0] * 2, thirds[1]}, 1);
  };
  compare(
      "product in thirds",
      [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
        return join(dslaunch::ApplyConv1DInThirds(x, weight, bias));
      },
      [&](const Tensor& product) { return join(product.chunk(3, 1)); });
}

// Checks GELU, also for values far from 0, where GELU returns its input or 0.
void CheckGelu(at::ScalarType type, c10::Device device) {
  const Leaf x = MakeLeaf(at::linspace(-30, 30, 4097).unsqueeze(0), type, device);
  dslaunch::FusedKernels* const kernels = dslaunch::FusedKernelsFor(x.here);
  const Tensor wanted = at::gelu(x.reference, "tanh");
  wanted.sum().backward();
  const Tensor here = x.here.detach();
  Compare(Name("GELU", here), type, kernels->Gelu(here), wanted.detach());
  const auto [by_x, sums] = kernels->GradientOfGelu(at::ones_like(here), here);
  Compare(Name("GELU, gradient", here), type, by_x, x.reference.grad());
  Compare(Name("GELU, sums of the gradient", here), type, sums, x.reference.grad()[0]);
}

void CheckAll(c10::Device device) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t columns : {1, 7, 257, 1000, 50257, 50304}) {
      CheckCrossEntropy(type, 5, columns, device);
    }
    CheckGelu(type, device);
    for (const int64_t columns : {8, 33, 128, 2048, 8192}) {
      for (const int64_t rows : {1, 130}) {
        for (const bool with_branch : {false, true}) {
          CheckRmsNorm(type, rows, columns, with_branch, device);
        }
        CheckSwiGlu(type, rows, columns, device);
      }
    }
    for (const int64_t width : {6, 64, 128}) CheckRotation(type, 257, width, device);
    for (const int64_t columns : {8, 33, 768, 1600, 4096}) {
      for (const int64_t rows : {1, 9, 1025}) {
        CheckAfterProduct(type, rows, columns, device);
        for (const bool with_branch : {false, true}) {
          CheckLayerNorm(type, rows, columns, with_branch, device);
        }
        CheckBias(type, rows, columns, device);
      }
    }
  }
}

// Prints the ms per call: the median of five measurements of ten calls each, by the device's
// events.
template <typename Work>
void Time(const std::string& what, c10::Device device, const Work& work) {
  const c10::impl::VirtualGuardImpl impl(device.type());
  std::vector<double> times;
  for (int i = 0; i < 6; ++i) {
    c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    begin.record(dslaunch::CurrentStream(device));
    for (int j = 0; j < 10; ++j) work();
    end.record(dslaunch::CurrentStream(device));
    dslaunch::AwaitStream(device);
    if (i > 0) times.push_back(begin.elapsedTime(end) / 10);
  }
  std::sort(times.begin(), times.end());
  std::printf("%-60s %8.3f ms\n", what.c_str(), times[2]);
}

void TimeAll(c10::Device device) {
  constexpr int64_t kRows = 32 * 1024, kWidth = 768, kVocabulary = 50304;
  const auto of = at::TensorOptions(device).dtype(at::kBFloat16);
  {
    Tensor logits = at::randn({kRows, kVocabulary}, of).requires_grad_();
    const Tensor targets = at::randint(kVocabulary, {kRows}, of.dtype(at::kLong));
    const auto backward = [&](const Tensor& loss) {
      loss.backward();
      logits.mutable_grad().reset();
    };
    Time("cross entropy of 32768 x 50304", device,
         [&] { backward(dslaunch::CrossEntropyOfLogits(logits, targets)); });
    Time("  by LibTorch", device,
         [&] { backward(at::cross_entropy_loss(logits.to(at::kFloat), targets)); });
  }
  torch::nn::LayerNorm layer(torch::nn::LayerNormOptions({kWidth}));
  layer->to(device, at::kBFloat16);
  Tensor x = at::randn({kRows, kWidth}, of).requires_grad_();
  const Tensor gradient = at::randn({kRows, kWidth}, of);
  const auto both = [&](const Tensor& sum, const Tensor& normalized) {
    torch::autograd::backward({sum, normalized}, {gradient, gradient});
    x.mutable_grad().reset();
    layer->zero_grad();
  };
  Time("sum and layer norm of 32768 x 768", device, [&] {
    const auto [sum, normalized] = dslaunch::AddAndNormalize(layer, x, gradient);
    both(sum, normalized);
  });
  Time("  by LibTorch", device, [&] {
    const Tensor sum = x + gradient;
    both(sum, layer(sum));
  });
  dslaunch::FusedKernels& kernels = *dslaunch::FusedKernelsFor(gradient);
  {
    const Tensor inner = at::randn({kRows, 4 * kWidth}, of), more = at::randn_like(inner);
    Time("GELU of 32768 x 3072", device, [&] { kernels.Gelu(inner); });
    Time("  by LibTorch", device, [&] { at::gelu(inner, "tanh"); });
    Time("gradient of GELU of 32768 x 3072, with its sums", device,
         [&] { kernels.GradientOfGelu(more, inner); });
    Time("  by LibTorch", device, [&] { at::gelu_backward(more, inner, "tanh").sum(0); });
  }
  {
    const Tensor gate = at::randn({kRows, 4 * kWidth}, of).requires_grad_();
    const Tensor up = at::randn_like(gate), more = at::randn_like(gate);
    Time("SwiGLU of 32768 x 3072 and its gradients", device, [&] {
      kernels.SwiGlu(gate.detach(), up);
      kernels.GradientsOfSwiGlu(more, gate.detach(), up);
    });
    Time("  by LibTorch", device, [&] { (at::silu(gate) * up).backward(more); });
    const Tensor weight = at::ones({kWidth}, of).requires_grad_();
    const auto backward = [&](const Tensor& sum, const Tensor& normalized) {
      torch::autograd::backward({sum, normalized}, {gradient, gradient});
      x.mutable_grad().reset();
      weight.mutable_grad().reset();
    };
    Time("sum and RMS norm of 32768 x 768", device, [&] {
      const auto [sum, normalized] = dslaunch::AddAndRmsNorm(x, gradient, weight, 1e-5);
      backward(sum, normalized);
    });
    Time("  by LibTorch", device, [&] {
      const Tensor sum = x + gradient;
      backward(sum, at::rms_norm(sum, {kWidth}, weight, 1e-5));
    });
    const Tensor heads = at::randn({32, 1024, 12, 64}, of);
    const Tensor cosines = at::randn({1024, 1, 32}, of), sines = at::randn({1024, 1, 32}, of);
    Time("rotation of 32 x 1024 x 12 x 64", device,
         [&] { dslaunch::RotateHeads(heads, cosines, sines); });
    Time("  by LibTorch", device, [&] {
      const std::vector<Tensor> halves = heads.chunk(2, -1);
      return at::cat(
          {halves[0] * cosines - halves[1] * sines, halves[1] * cosines + halves[0] * sines}, -1);
    });
  }
  Time("three times 32768 x 768 side by side, with their sums", device, [&] {
    kernels.JoinThirds({gradient, gradient, gradient});
  });
  Time("  by LibTorch", device, [&] { at::cat({gradient, gradient, gradient}, 1).sum(0); });
  for (const int64_t columns : {768, 2304, 3072}) {
    const Tensor rows = at::randn({kRows, columns}, of);
    Time("sums of the columns of 32768 x " + std::to_string(columns), device,
         [&] { dslaunch::FusedKernelsFor(rows)->SumRows(rows); });
    Time("  by LibTorch", device, [&] { rows.sum(0); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: dslaunch-kernels-program SEED [time]\n");
    return 64;
  }
  return dslaunch::Main([&] {
    dslaunch::Spawn(1, [&](int) {
      const auto group = dslaunch::InitProcessGroup({.device = "cuda"});
      at::manual_seed(std::stoull(argv[1]));
      if (dslaunch::FusedKernelsFor(at::ones({1, 1}, group.device())) == nullptr) {
        throw std::runtime_error("this device has no kernels");
      }
      if (argc > 2) {
        TimeAll(group.device());
      } else {
        CheckAll(group.device());
      }
      std::fflush(stdout);
      if (failures > 0) throw std::runtime_error(std::to_string(failures) + " comparisons failed");
    });
  });
}
