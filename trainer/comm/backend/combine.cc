#include "trainer/comm/backend/combine.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace dslaunch {
namespace {

// Number of elements that are added up at a time, so small that the partial sums fit into the
// cache.
constexpr int64_t kSumElements = 1 << 16;

at::ScalarType SumType(at::ScalarType dtype) {
  return at::isFloatingType(dtype) ? at::promote_types(dtype, at::kFloat) : dtype;
}

template <class Reduce>
void FromTheLeft(const std::vector<at::Tensor>& parts, const at::Tensor& result, Reduce reduce) {
  at::Tensor total = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) total = reduce(total, parts[i]);
  at::Tensor(result).copy_(total);
}

}  // namespace

void AddUp(const std::vector<at::Tensor>& parts, const at::Tensor& sum) {
  const at::ScalarType dtype = SumType(parts[0].scalar_type());
  const int64_t step = sum.is_cpu() ? kSumElements : std::max<int64_t>(sum.numel(), 1);
  for (int64_t start = 0; start < sum.numel(); start += step) {
    const int64_t end = std::min(start + step, sum.numel());
    at::Tensor total = parts[0].slice(0, start, end).to(dtype);
    for (size_t i = 1; i < parts.size(); ++i) {
      const bool last = i + 1 == parts.size();
      at::Tensor target = last ? sum.slice(0, start, end) : at::empty_like(total);
      at::add_out(target, total, parts[i].slice(0, start, end));
      total = target;
    }
    if (parts.size() == 1) sum.slice(0, start, end).copy_(total);
  }
}

void Combine(const std::vector<at::Tensor>& parts, c10d::ReduceOp::RedOpType op,
             const at::Tensor& result) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return AddUp(parts, result);
    case c10d::ReduceOp::MIN:
      return FromTheLeft(parts, result,
                         [](const auto& a, const auto& b) { return at::minimum(a, b); });
    case c10d::ReduceOp::MAX:
      return FromTheLeft(parts, result,
                         [](const auto& a, const auto& b) { return at::maximum(a, b); });
    case c10d::ReduceOp::PRODUCT:
      return FromTheLeft(parts, result, [](const auto& a, const auto& b) { return at::mul(a, b); });
    default:
      TORCH_CHECK(false, "shm: reductions support sum, minimum, maximum and product only");
  }
}

at::ScalarType PartialType(at::ScalarType dtype, c10d::ReduceOp::RedOpType op) {
  return op == c10d::ReduceOp::SUM ? SumType(dtype) : dtype;
}

}  // namespace dslaunch
