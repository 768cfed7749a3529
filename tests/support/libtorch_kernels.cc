#include "tests/support/libtorch_kernels.h"

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

  // Only some widths, so that tests cover both paths.
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
};

}  // namespace

std::unique_ptr<FusedKernels> MakeLibtorchKernels() { return std::make_unique<LibtorchKernels>(); }

}  // namespace dslaunch
