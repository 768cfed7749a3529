#include "trainer/program/generate.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

// Returns the next token for `logits`, [vocabulary]. Throws kBadInput if a logit is NaN or
// infinite.
int64_t Choose(const at::Tensor& logits, const GenerateOptions& options, at::Generator& random) {
  if (!at::isfinite(logits).all().item<bool>()) {
    RefuseInput("the model's logits are not finite; its weights are damaged or training diverged");
  }
  if (options.temperature == 0) return logits.argmax().item<int64_t>();
  const NextTokens next = NextTokensOf(logits, options);
  const at::Tensor drawn = at::multinomial(next.probabilities, 1, /*replacement=*/false, random);
  return next.ids.defined() ? next.ids.take(drawn).item<int64_t>() : drawn.item<int64_t>();
}

}  // namespace

NextTokens NextTokensOf(const at::Tensor& logits, const GenerateOptions& options) {
  const at::Tensor scaled = logits / options.temperature;
  if (options.top_k == 0 && options.top_p == 1) return {at::softmax(scaled, 0), {}};
  const int64_t count =
      options.top_k == 0 ? logits.numel() : std::min(options.top_k, logits.numel());
  const auto [best, ids] = scaled.topk(count);
  const at::Tensor probabilities = at::softmax(best, 0);
  if (options.top_p == 1) return {probabilities, ids};
  // A token is kept if the probabilities of the tokens before it sum to less than top_p. The first
  // token is always kept, so that one can be sampled.
  const at::Tensor before = probabilities.cumsum(0) - probabilities;
  const int64_t kept = std::max<int64_t>(1, before.lt(options.top_p).sum().item<int64_t>());
  const at::Tensor likely = probabilities.slice(0, 0, kept);
  return {likely / likely.sum(), ids.slice(0, 0, kept)};
}

std::vector<Generated> Generate(NextLogits& next_logits, const std::vector<Prompt>& prompts,
                                const GenerateOptions& options) {
  TokenRows rows;
  std::vector<at::Generator> random;
  for (const Prompt& prompt : prompts) {
    if (prompt.tokens.empty()) RefuseInput("the prompt is empty; give at least one token");
    rows.push_back(prompt.tokens);
    random.push_back(at::make_generator<at::CPUGeneratorImpl>(prompt.seed));
  }
  std::vector<Generated> results(prompts.size());
  std::vector<size_t> active;  // index of the prompt in each row of the batch
  for (size_t i = 0; i < prompts.size(); ++i) active.push_back(i);
  for (int64_t step = 0; step < options.max_new_tokens && !active.empty(); ++step) {
    const at::Tensor logits = next_logits.After(rows);
    std::vector<int64_t> kept;
    for (size_t row = 0; row < active.size(); ++row) {
      Generated& result = results[active[row]];
      const int64_t token = Choose(logits[static_cast<int64_t>(row)], options, random[active[row]]);
      rows[row].push_back(token);
      result.tokens.push_back(token);
      result.ended = std::ranges::count(options.end_tokens, token) > 0 ||
                     (options.ends && options.ends(rows[row], prompts[active[row]].tokens.size()));
      if (!result.ended) kept.push_back(static_cast<int64_t>(row));
    }
    if (kept.size() == active.size()) continue;
    for (size_t i = 0; i < kept.size(); ++i) {
      const auto from = static_cast<size_t>(kept[i]);
      active[i] = active[from];
      if (i != from) rows[i] = std::move(rows[from]);
    }
    active.resize(kept.size());
    rows.resize(kept.size());
    if (!kept.empty()) next_logits.KeepRows(kept);
  }
  return results;
}

}  // namespace dslaunch
