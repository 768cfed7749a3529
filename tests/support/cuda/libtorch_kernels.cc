#include "tests/support/cuda/libtorch_kernels.h"

#include <ATen/ATen.h>

namespace dslaunch {
namespace {

constexpr int64_t kNoTarget = -100;

class LibtorchKernels : public FusedKernels {
 public:
  RowLosses CrossEntropy(const at::Tensor& logits, const at::Tensor& targets) override {
    const at::Tensor wide = logits.to(at::kFloat);
    return {at::cross_entropy_loss(wide, targets, {}, at::Reduction::None, kNoTarget),
            wide.logsumexp(1)};
  }

  at::Tensor CrossEntropyGradient(const at::Tensor& logits, const at::Tensor& targets,
                                  const at::Tensor& log_sums, const at::Tensor& scales) override {
    at::Tensor gradient = (logits.to(at::kFloat) - log_sums.unsqueeze(1)).exp();
    const at::Tensor columns = targets.clamp_min(0).unsqueeze(1);
    gradient.scatter_add_(1, columns, at::full_like(columns, -1.0, gradient.options()));
    const at::Tensor factors = scales.masked_fill(targets.eq(kNoTarget), 0);
    return (gradient * factors.unsqueeze(1)).to(logits.scalar_type());
  }

  at::Tensor SumRows(const at::Tensor& rows) override {
    return rows.to(at::kFloat).sum(0).to(rows.scalar_type());
  }

  at::Tensor Gelu(const at::Tensor& x) override { return at::gelu(x, "tanh"); }

  RowsAndSums GradientOfGelu(const at::Tensor& gradient, const at::Tensor& x) override {
    const at::Tensor by_x = at::gelu_backward(gradient, x, "tanh");
    return {by_x, SumRows(by_x)};
  }

  RowsAndSums JoinThirds(const std::array<at::Tensor, 3>& thirds) override {
    const at::Tensor all = at::cat(thirds, 1);
    return {all, SumRows(all)};
  }

  // Supports only some widths, so that tests cover both fused and separate operators.
  bool HasLayerNorm(const at::Tensor& rows) const override { return rows.size(1) % 8 == 0; }

  Normalized LayerNorm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                       const at::Tensor& bias, double epsilon) override {
    const at::Tensor sums = branch.defined() ? x + branch : x;
    const auto [normalized, means, inverse_deviations] = at::native_layer_norm(
        sums.to(at::kFloat), weight.sizes(), weight.to(at::kFloat), bias.to(at::kFloat), epsilon);
    return {sums, normalized.to(x.scalar_type()), means.flatten(), inverse_deviations.flatten()};
  }

  LayerNormGradients GradientsOfLayerNorm(const at::Tensor& gradient,
                                          const at::Tensor& sum_gradient, const Normalized& forward,
                                          const at::Tensor& weight) override {
    const at::ScalarType type = forward.sums.scalar_type();
    const at::Tensor wide = weight.to(at::kFloat);
    const auto [by_x, of_weight, of_bias] = at::native_layer_norm_backward(
        gradient.to(at::kFloat), forward.sums.to(at::kFloat), weight.sizes(),
        forward.means.unsqueeze(1), forward.inverse_deviations.unsqueeze(1), wide, wide,
        {true, true, true});
    const at::Tensor all = sum_gradient.defined() ? by_x + sum_gradient : by_x;
    return {all.to(type), of_weight.to(type), of_bias.to(type)};
  }

  // Supports only some widths, so that tests cover both fused and separate operators.
  bool HasRmsNorm(const at::Tensor& rows) const override { return rows.size(1) % 8 == 0; }

  RmsNormalized RmsNorm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                        double epsilon) override {
    const at::Tensor sums = branch.defined() ? x + branch : x;
    const at::Tensor wide = sums.to(at::kFloat);
    const at::Tensor inverses = (wide.square().mean(1, /*keepdim=*/true) + epsilon).rsqrt();
    return {sums, weight * (wide * inverses).to(x.scalar_type()), inverses.flatten()};
  }

  RmsNormGradients GradientsOfRmsNorm(const at::Tensor& gradient, const at::Tensor& sum_gradient,
                                      const RmsNormalized& forward,
                                      const at::Tensor& weight) override {
    const at::ScalarType type = forward.sums.scalar_type();
    const at::Tensor inverses = forward.inverses.unsqueeze(1);
    const at::Tensor quotients = forward.sums.to(at::kFloat) * inverses;
    const at::Tensor wide = gradient.to(at::kFloat);
    const at::Tensor by_quotients = wide * weight.to(at::kFloat);
    const at::Tensor along = (by_quotients * quotients).mean(1, /*keepdim=*/true);
    const at::Tensor by_x = (by_quotients - quotients * along) * inverses;
    return {(sum_gradient.defined() ? by_x + sum_gradient : by_x).to(type),
            (wide * quotients).sum(0).to(type)};
  }

  at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines,
                    double direction) override {
    const at::Tensor turned = x.view({-1, cosines.size(0), x.size(-2), x.size(-1)});
    const std::vector<at::Tensor> halves = turned.chunk(2, -1);
    const at::Tensor c = cosines.unsqueeze(1), s = sines.unsqueeze(1) * direction;
    return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1)
        .view(x.sizes());
  }

  at::Tensor SwiGlu(const at::Tensor& gate, const at::Tensor& up) override {
    return at::silu(gate) * up;
  }

  SwiGluInputs GradientsOfSwiGlu(const at::Tensor& gradient, const at::Tensor& gate,
                                 const at::Tensor& up) override {
    return {at::silu_backward(gradient * up, gate), gradient * at::silu(gate)};
  }
};

}  // namespace

std::unique_ptr<FusedKernels> MakeLibtorchKernels() { return std::make_unique<LibtorchKernels>(); }

}  // namespace dslaunch
