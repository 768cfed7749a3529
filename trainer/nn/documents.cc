#include "trainer/nn/documents.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trainer/base/document_mark.h"
#include "trainer/nn/causal_attention.h"

namespace dslaunch {
namespace {

// Returns whether the tokens have values that this process can read. In a pass that only counts
// memory (trainer/deferred_init/shape_pass.h) tensors have no values.
bool IsReadable(const at::Tensor& tokens) {
  return tokens.is_cpu() && tokens.has_storage() && tokens.storage().data() != nullptr;
}

// Returns the length of each document of all samples.
std::vector<int64_t> LengthsOf(const at::Tensor& tokens) {
  const at::Tensor rows = tokens.contiguous();
  const auto* token = rows.const_data_ptr<int64_t>();
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < rows.numel(); ++i) {
    if (i % rows.size(1) == 0 || IsDocumentStart(token[i])) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

}  // namespace

at::Tensor Documents::Divide(const at::Tensor& tokens) {
  *this = Documents();
  if (tokens.is_cpu()) {
    if (!IsReadable(tokens)) return tokens;
    lengths_ = LengthsOf(tokens);
    if (lengths_.size() == static_cast<size_t>(tokens.size(0))) return tokens;
  }
  const at::Tensor begins = tokens.lt(0);
  const at::Tensor places = at::arange(tokens.size(1), tokens.options());
  starts_ = std::get<0>(at::cummax(begins * places, 1));
  positions_ = places - starts_;
  return at::where(begins, tokens.bitwise_not(), tokens);
}

at::Tensor Documents::Attend(const at::Tensor& query, const at::Tensor& key,
                             const at::Tensor& value, double dropout,
                             std::optional<int64_t> window) {
  if (!lengths_.empty()) return AttendEach(query, key, value, dropout, window);
  return CausalAttention(query, key, value, Mask(window, query.scalar_type()), dropout);
}

// With a slice for each document, the gradient of each slice would have the size of the whole
// tensor, so each tensor is split by one operation.
at::Tensor Documents::AttendEach(const at::Tensor& query, const at::Tensor& key,
                                 const at::Tensor& value, double dropout,
                                 std::optional<int64_t> window) {
  const auto split = [&](const at::Tensor& x) {
    return x.flatten(0, 1).unsqueeze(0).split_with_sizes(lengths_, 1);
  };
  const std::vector<at::Tensor> queries = split(query), keys = split(key), values = split(value);
  std::vector<at::Tensor> mixed;
  for (size_t i = 0; i < lengths_.size(); ++i) {
    const int64_t length = lengths_[i];
    std::optional<at::Tensor> mask;
    if (window && length > *window) {
      mask = Band(query.size(1), window, query).narrow(0, 0, length).narrow(1, 0, length);
    }
    mixed.push_back(CausalAttention(queries[i], keys[i], values[i], mask, dropout));
  }
  return at::cat(mixed, 1).view(query.sizes());
}

// Returns the attention mask bool [length, length], which is true where j <= i and i - j < window.
const at::Tensor& Documents::Band(int64_t length, std::optional<int64_t> window,
                                  const at::Tensor& like) {
  at::Tensor& band = bands_[window.value_or(0)];
  if (!band.defined()) {
    band = at::ones({length, length}, like.options().dtype(at::kBool)).tril_();
    if (window) band.triu_(1 - *window);
  }
  return band;
}

const at::Tensor& Documents::Mask(std::optional<int64_t> window, at::ScalarType type) {
  at::Tensor& mask = masks_[window.value_or(0)];
  if (!mask.defined() || mask.scalar_type() != type) {
    const at::Tensor together = starts_.unsqueeze(2).eq(starts_.unsqueeze(1)).unsqueeze(1);
    mask = AdditiveMask(together.logical_and_(Band(starts_.size(1), window, starts_)), type);
  }
  return mask;
}

}  // namespace dslaunch
