#include "trainer/program/next_logits.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace dslaunch {
namespace {

// Returns the last `most` tokens of each row, padded at their ends to the same length. No token
// attends to padding, because it comes after all tokens.
at::Tensor Padded(const TokenRows& rows, int64_t most) {
  int64_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, static_cast<int64_t>(row.size()));
  const int64_t width = std::min(longest, most);
  const at::Tensor tokens = at::zeros({static_cast<int64_t>(rows.size()), width}, at::kLong);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto shown = std::min(static_cast<int64_t>(rows[i].size()), width);
    std::copy(rows[i].end() - shown, rows[i].end(),
              tokens.data_ptr<int64_t>() + static_cast<int64_t>(i) * width);
  }
  return tokens;
}

std::vector<int64_t> Lengths(const TokenRows& rows) {
  std::vector<int64_t> lengths;
  for (const auto& row : rows) lengths.push_back(static_cast<int64_t>(row.size()));
  return lengths;
}

// Makes the model use the cache while this object exists.
class CacheScope {
 public:
  CacheScope(CachingModel& model, KeyValueCache& cache) : model_(model) { model.UseCache(&cache); }
  ~CacheScope() { model_.UseCache(nullptr); }
  CacheScope(const CacheScope&) = delete;
  CacheScope& operator=(const CacheScope&) = delete;

 private:
  CachingModel& model_;
};

}  // namespace

NextLogits::NextLogits(TokenModel model, const Options& options)
    : model_(std::move(model)), options_(options) {}

NextLogits::~NextLogits() = default;

at::Tensor NextLogits::After(const TokenRows& rows) {
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> lengths = Lengths(rows);
  const bool fits = std::ranges::max(lengths) <= options_.n_positions;
  const at::Tensor logits =
      options_.caching != nullptr && fits ? Continued(rows) : Recomputed(rows);
  return logits.to(at::kCPU, at::kFloat);
}

void NextLogits::KeepRows(const std::vector<int64_t>& rows) {
  if (cache_) cache_->KeepRows(rows);
}

at::Tensor NextLogits::Continued(const TokenRows& rows) {
  at::Tensor tokens;
  if (cache_) {
    std::vector<int64_t> last;
    for (const auto& row : rows) last.push_back(row.back());
    tokens = at::tensor(last).unsqueeze(1);
  } else {
    tokens = Padded(rows, options_.n_positions);
    cache_.emplace(std::min(options_.capacity, options_.n_positions));
  }
  cache_->BeginPass(Lengths(rows), options_.device);
  const CacheScope scope(*options_.caching, *cache_);
  return model_(tokens).squeeze(1);
}

at::Tensor NextLogits::Recomputed(const TokenRows& rows) {
  cache_.reset();
  const at::Tensor logits = model_(Padded(rows, options_.n_positions));
  std::vector<int64_t> last = Lengths(rows);
  for (int64_t& length : last) length = std::min(length, options_.n_positions) - 1;
  const at::Tensor positions = at::tensor(last).to(logits.device());
  return logits.index({at::arange(logits.size(0), positions.options()), positions});
}

}  // namespace dslaunch
