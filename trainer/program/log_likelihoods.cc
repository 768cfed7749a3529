#include "trainer/program/log_likelihoods.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "trainer/base/train_error.h"
#include "trainer/nn/cross_entropy.h"

namespace dslaunch {
namespace {

int64_t Inputs(const ScoredTokens& sequence) {
  return static_cast<int64_t>(sequence.tokens.size()) - 1;
}

// Returns the inputs of a batch, int64 [sequences, longest]. Sequences are padded at their ends,
// because no token attends to later tokens.
at::Tensor PaddedInputs(const std::vector<ScoredTokens>& sequences, std::span<const size_t> batch) {
  int64_t longest = 0;
  for (const size_t i : batch) longest = std::max(longest, Inputs(sequences[i]));
  const at::Tensor inputs = at::zeros({static_cast<int64_t>(batch.size()), longest}, at::kLong);
  auto* row = inputs.data_ptr<int64_t>();
  for (const size_t i : batch) {
    std::copy(sequences[i].tokens.begin(), sequences[i].tokens.end() - 1, row);
    row += longest;
  }
  return inputs;
}

// Returns the targets of a sequence, int64 [1, inputs], without targets before the scored tokens.
at::Tensor TargetsOf(const ScoredTokens& sequence) {
  const at::Tensor targets = at::tensor(sequence.tokens).slice(0, 1).clone();
  targets.slice(0, 0, Inputs(sequence) - sequence.scored).fill_(kNoTarget);
  return targets.unsqueeze(0);
}

}  // namespace

std::vector<double> LogLikelihoods(TrainingModel& training_model,
                                   const std::vector<ScoredTokens>& sequences,
                                   const ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  training_model.SetTrain(false);
  // The longest sequences need the most memory, so they are first: if memory is too small, the
  // first batch fails.
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return Inputs(sequences[i]); });
  const auto size = static_cast<size_t>(training_model.core().micro_batch_size());
  const size_t batches = (order.size() + size - 1) / size;
  const ProcessGroup& replicas = training_model.replicas();
  const auto replica = static_cast<size_t>(replicas.rank()),
             count = static_cast<size_t>(replicas.world_size());
  std::vector<double> results(sequences.size(), 0.0);
  for (size_t first = 0; first < batches; first += count) {
    const bool has_own = first + replica < batches;
    if (!has_own && !training_model.core().ForwardIsCollective()) break;
    const size_t begin = (has_own ? first + replica : first) * size;
    const std::span batch = std::span(order).subspan(begin, std::min(size, order.size() - begin));
    const at::Tensor output = training_model.Forward(PaddedInputs(sequences, batch));
    if (!has_own || !training_model.is_last_stage()) continue;
    const AutocastScope autocast = training_model.core().Autocast();
    for (size_t row = 0; row < batch.size(); ++row) {
      const ScoredTokens& sequence = sequences[batch[row]];
      const at::Tensor logits =
          output.narrow(0, static_cast<int64_t>(row), 1).narrow(1, 0, Inputs(sequence));
      // The loss is collective over the ranks that hold parts of the output, so all of them compute
      // it. Only the result of one of them enters the sum.
      const double nll =
          training_model.model()
              .Loss(logits, TargetsOf(sequence).to(output.device()), at::Reduction::Sum)
              .item<double>();
      if (training_model.counts()) results[batch[row]] = -nll;
    }
  }
  group.AllReduceSum(results);
  if (!std::ranges::all_of(results, [](double value) { return std::isfinite(value); })) {
    RefuseInput(
        "the model's probabilities are not finite; its weights are damaged or training diverged");
  }
  return results;
}

}  // namespace dslaunch
