#include "trainer/nn/tensor_parallel/vocabulary.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "trainer/nn/cross_entropy.h"
#include "trainer/nn/row_parts.h"
#include "trainer/nn/tensor_parallel/divided_module.h"
#include "trainer/nn/tensor_parallel/exchanges.h"

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

// Token indices relative to a rank's range of the vocabulary; 0 for tokens outside of the range.
struct InRange {
  at::Tensor is_outside;  // bool for each token: true if the token is outside of the range
  at::Tensor indices;
};

InRange IndicesIn(const PartRange& range, const at::Tensor& tokens) {
  at::Tensor is_outside = tokens.lt(range.begin).logical_or_(tokens.ge(range.end));
  at::Tensor indices = (tokens - range.begin).masked_fill_(is_outside, 0);
  return {std::move(is_outside), std::move(indices)};
}

// Returns two sums of each row, fp32 [2, rows]: the sum of exp(logit - top) over the first
// `columns` columns; and the target's logit - top, or 0 if another rank has the target.
at::Tensor OwnSums(const at::Tensor& logits, int64_t columns, const at::Tensor& tops,
                   const InRange& targets) {
  at::Tensor sums = at::empty({2, logits.size(0)}, tops.options());
  ForEachRowPart(logits, [&](int64_t first, int64_t rows) {
    const at::Tensor top = tops.narrow(0, first, rows).unsqueeze(1);
    const at::Tensor part = logits.narrow(0, first, rows).narrow(1, 0, columns).to(at::kFloat);
    sums.select(0, 0).narrow(0, first, rows).copy_((part - top).exp_().sum(1));
  });
  const at::Tensor own = logits.gather(1, targets.indices.unsqueeze(1)).squeeze(1).to(at::kFloat);
  sums.select(0, 1).copy_((own - tops).masked_fill_(targets.is_outside, 0));
  return sums;
}

// Autograd function that returns the loss of each row of logits, [rows, width]. Only the columns of
// RangeOf(tensor, vocabulary) count; the other columns are padding.
struct RowLossesOfParts : autograd::Function<RowLossesOfParts> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets, int64_t vocabulary,
                            const TensorParallel& tensor) {
    const PartRange range = RangeOf(tensor, vocabulary);
    const int64_t columns = range.end - range.begin;
    const at::Tensor own_tops =
        columns > 0 ? logits.narrow(1, 0, columns).amax(1).to(at::kFloat)
                    : at::full({logits.size(0)}, -std::numeric_limits<double>::infinity(),
                               logits.options().dtype(at::kFloat));
    const at::Tensor tops = MaxOverParts(own_tops, tensor);
    const InRange own = IndicesIn(range, targets);
    const at::Tensor sums = SumOverParts(OwnSums(logits, columns, tops, own), tensor);
    const at::Tensor logs = sums[0].log();
    const at::Tensor is_ignored = targets.eq(kNoTarget);
    context->save_for_backward({logits, own.indices, own.is_outside, is_ignored, tops + logs});
    context->saved_data["columns"] = columns;
    return (logs - sums[1]).masked_fill_(is_ignored, 0);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &log_sums = saved[4];
    const int64_t columns = context->saved_data["columns"].toInt();
    const at::Tensor indices = saved[1].unsqueeze(1);
    const at::Tensor ones = saved[2].logical_not().to(at::kFloat).neg_().unsqueeze(1);
    const at::Tensor factors = gradients[0].masked_fill(saved[3], 0).unsqueeze(1);
    at::Tensor gradient = at::zeros_like(logits);
    if (columns == 0) return {gradient, {}, {}, {}};
    ForEachRowPart(logits, [&](int64_t first, int64_t rows) {
      at::Tensor part = logits.narrow(0, first, rows).narrow(1, 0, columns).to(at::kFloat) -
                        log_sums.narrow(0, first, rows).unsqueeze(1);
      part.exp_().scatter_add_(1, indices.narrow(0, first, rows), ones.narrow(0, first, rows));
      gradient.narrow(0, first, rows)
          .narrow(1, 0, columns)
          .copy_(part.mul_(factors.narrow(0, first, rows)));
    });
    return {gradient, {}, {}, {}};
  }
};

}  // namespace

at::Tensor EmbedTokens(const at::Tensor& tokens, const at::Tensor& weight, int64_t vocabulary,
                       int64_t padding, const TensorParallel& tensor) {
  if (!tensor.divides()) return at::embedding(weight, tokens, padding);
  const PartRange range = RangeOf(tensor, vocabulary);
  const InRange own = IndicesIn(range, tokens);
  const bool has_padding = padding >= range.begin && padding < range.end;
  const at::Tensor embeddings =
      at::embedding(weight, own.indices, has_padding ? padding - range.begin : -1);
  return LeaveRegion(embeddings.masked_fill(own.is_outside.unsqueeze(-1), 0), tensor);
}

at::Tensor CrossEntropyOfParts(const at::Tensor& logits, const at::Tensor& targets,
                               int64_t vocabulary, const TensorParallel& tensor,
                               int64_t reduction) {
  if (!tensor.divides()) return CrossEntropyOfLogits(logits, targets, reduction);
  const at::Tensor wanted = targets.flatten().contiguous();
  const at::Tensor sum =
      RowLossesOfParts::apply(logits.flatten(0, -2).contiguous(), wanted, vocabulary, tensor).sum();
  return reduction == at::Reduction::Sum ? sum : sum / wanted.ne(kNoTarget).sum();
}

at::Tensor LanguageModel::Loss(const at::Tensor& output, const at::Tensor& targets,
                               int64_t reduction) const {
  return CrossEntropyOfParts(output, targets, vocabulary_, tensor_, reduction);
}

at::Tensor LanguageModel::WholeOutput(const at::Tensor& output) const {
  if (!tensor_.divides()) return output;
  return JoinParts(output, tensor_).narrow(-1, 0, vocabulary_);
}

}  // namespace dslaunch
