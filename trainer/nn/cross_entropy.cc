#include "trainer/nn/cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/device/fused_kernels.h"
#include "trainer/nn/row_parts.h"

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

// Returns the loss of each row as fp32 [rows], computed part by part.
at::Tensor LossesInParts(const at::Tensor& logits, const at::Tensor& targets) {
  at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  ForEachRowPart(logits, [&](int64_t first, int64_t rows) {
    losses.narrow(0, first, rows)
        .copy_(at::cross_entropy_loss(logits.narrow(0, first, rows).to(at::kFloat),
                                      targets.narrow(0, first, rows), /*weight=*/{},
                                      at::Reduction::None, kNoTarget));
  });
  return losses;
}

at::Tensor GradientInParts(const at::Tensor& logits, const at::Tensor& targets,
                           const at::Tensor& scales) {
  at::Tensor gradient = at::empty_like(logits);
  const at::Tensor columns = targets.clamp_min(0).unsqueeze(1);
  const at::Tensor factors = scales.masked_fill(targets.eq(kNoTarget), 0).unsqueeze(1);
  ForEachRowPart(logits, [&](int64_t first, int64_t rows) {
    at::Tensor part = at::log_softmax(logits.narrow(0, first, rows).to(at::kFloat), 1).exp_();
    part.scatter_add_(1, columns.narrow(0, first, rows),
                      at::full({1, 1}, -1.0, part.options()).expand({rows, 1}));
    gradient.narrow(0, first, rows).copy_(part.mul_(factors.narrow(0, first, rows)));
  });
  return gradient;
}

// Autograd function that returns the loss of each row.
struct RowLosses : autograd::Function<RowLosses> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets) {
    if (FusedKernels* const kernels = FusedKernelsFor(logits)) {
      const FusedKernels::RowLosses found = kernels->CrossEntropy(logits, targets);
      context->save_for_backward({logits, targets, found.log_sums});
      return found.losses;
    }
    context->save_for_backward({logits, targets, at::Tensor()});
    return LossesInParts(logits, targets);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &targets = saved[1], &log_sums = saved[2];
    const at::Tensor scales = gradients[0].contiguous();
    return {log_sums.defined()
                ? FusedKernelsFor(logits)->CrossEntropyGradient(logits, targets, log_sums, scales)
                : GradientInParts(logits, targets, scales),
            {}};
  }
};

}  // namespace

at::Tensor CrossEntropyOfLogits(const at::Tensor& logits, const at::Tensor& targets,
                                int64_t reduction) {
  const at::Tensor rows = logits.flatten(0, -2).contiguous();
  const at::Tensor wanted = targets.flatten().contiguous();
  if (rows.scalar_type() == at::kFloat && FusedKernelsFor(rows) == nullptr) {
    return at::cross_entropy_loss(rows, wanted, /*weight=*/{}, reduction, kNoTarget);
  }
  const at::Tensor sum = RowLosses::apply(rows, wanted).sum();
  return reduction == at::Reduction::Sum ? sum : sum / wanted.ne(kNoTarget).sum();
}

}  // namespace dslaunch
