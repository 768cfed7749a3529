#include "trainer/program/generate.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

// logits: [vocabulary]
int64_t Choose(const at::Tensor& logits, const GenerateOptions& options, at::Generator& random) {
  if (!at::isfinite(logits).all().item<bool>()) {
    throw TrainError(ExitCode::kBadInput,
                     "the model's logits are not finite; its weights are damaged or training "
                     "diverged");
  }
  if (options.temperature == 0) return logits.argmax().item<int64_t>();
  const int64_t count =
      options.top_k == 0 ? logits.numel() : std::min(options.top_k, logits.numel());
  const auto [best, ids] = logits.topk(count);
  const at::Tensor chances = at::softmax(best / options.temperature, 0);
  return ids.take(at::multinomial(chances, 1, /*replacement=*/false, random)).item<int64_t>();
}

}  // namespace

std::vector<int64_t> Generate(const TokenModel& model, std::vector<int64_t> prompt,
                              const GenerateOptions& options) {
  if (prompt.empty()) {
    throw TrainError(ExitCode::kBadInput, "the prompt is empty; give at least one token");
  }
  const at::NoGradGuard no_grad;
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  std::vector<int64_t> tokens = std::move(prompt);
  const size_t given = tokens.size();
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const auto shown = std::min(static_cast<int64_t>(tokens.size()), options.n_positions);
    const at::Tensor last = at::tensor(std::vector<int64_t>(tokens.end() - shown, tokens.end()));
    const at::Tensor logits = model(last.unsqueeze(0)).select(1, -1).squeeze(0);
    tokens.push_back(Choose(logits.to(at::kCPU, at::kFloat), options, random));
  }
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<int64_t>(given));
  return tokens;
}

std::vector<int64_t> Generate(Model& model, std::vector<int64_t> prompt,
                              const GenerateOptions& options) {
  const bool training = model.is_training();
  model.eval();
  std::vector<int64_t> tokens = Generate(
      [&](const at::Tensor& shown) { return model.forward(shown); }, std::move(prompt), options);
  model.train(training);
  return tokens;
}

}  // namespace dslaunch
