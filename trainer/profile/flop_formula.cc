#include "trainer/profile/flop_formula.h"

#include <array>
#include <functional>
#include <numeric>

namespace dslaunch {
namespace {

double Elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
}

// Returns the operations of a product [..., n, k] x [..., k, m]. A vector `b` counts as a matrix
// with one column.
double Product(const Shape& a, const Shape& b) {
  if (a.size() < 2 || b.empty()) return 0;
  return 2 * Elements(a) * (b.size() == 1 ? 1 : static_cast<double>(b.back()));
}

double Convolution(const OperatorCall& call) {
  const Shape& weight = call.inputs[1];
  if (weight.empty() || weight[0] == 0) return 0;
  const Shape& pixels = call.transposed ? call.inputs[0] : call.output;
  return 2 * Elements(pixels) * Elements(weight) / static_cast<double>(weight[0]);
}

// Returns the operations of attention for a query [..., t, d], a key [..., s, d] and a value [...,
// s, e].
double Attention(const OperatorCall& call) {
  const Shape &query = call.inputs[0], &key = call.inputs[1], &value = call.inputs[2];
  if (query.size() < 2 || key.size() < 2 || value.size() < 2) return 0;
  const auto keys = static_cast<double>(key[key.size() - 2]);
  const double rows = Elements(query) / static_cast<double>(query.back());
  return 2 * rows * keys * static_cast<double>(query.back() + value.back());
}

// Returns the operations of a linear layer for `x`, [n, k], and `weight`, [m, k].
double Linear(const Shape& x, const Shape& weight) {
  return weight.size() != 2 ? 0 : 2 * Elements(x) * static_cast<double>(weight[0]);
}

enum class Kind { kProduct, kAddedProduct, kLinear, kConvolution, kAttention };

struct Formula {
  std::string_view name;
  Kind kind;
  size_t inputs;  // required number of inputs of the operator
};

constexpr std::array kFormulas = {
    Formula{"aten::mm", Kind::kProduct, 2},
    Formula{"aten::bmm", Kind::kProduct, 2},
    Formula{"aten::mv", Kind::kProduct, 2},
    Formula{"aten::addmm", Kind::kAddedProduct, 3},
    Formula{"aten::_addmm_activation", Kind::kAddedProduct, 3},
    Formula{"aten::addmv", Kind::kAddedProduct, 3},
    Formula{"aten::baddbmm", Kind::kAddedProduct, 3},
    Formula{"mkldnn::_linear_pointwise", Kind::kLinear, 2},
    Formula{"aten::convolution", Kind::kConvolution, 2},
    Formula{"aten::_scaled_dot_product_flash_attention_for_cpu", Kind::kAttention, 3},
    Formula{"aten::_scaled_dot_product_flash_attention", Kind::kAttention, 3},
    Formula{"aten::_scaled_dot_product_efficient_attention", Kind::kAttention, 3},
    Formula{"aten::_scaled_dot_product_cudnn_attention", Kind::kAttention, 3},
};

const Formula* Find(std::string_view name) {
  for (const Formula& formula : kFormulas) {
    if (formula.name == name) return &formula;
  }
  return nullptr;
}

}  // namespace

bool HasFlopFormula(std::string_view name) { return Find(name) != nullptr; }

double OperatorFlops(std::string_view name, const OperatorCall& call) {
  const Formula* formula = Find(name);
  if (formula == nullptr || call.inputs.size() < formula->inputs) return 0;
  switch (formula->kind) {
    case Kind::kProduct:
      return Product(call.inputs[0], call.inputs[1]);
    case Kind::kAddedProduct:
      return Product(call.inputs[1], call.inputs[2]);
    case Kind::kLinear:
      return Linear(call.inputs[0], call.inputs[1]);
    case Kind::kConvolution:
      return Convolution(call);
    case Kind::kAttention:
      return Attention(call);
  }
  return 0;
}

}  // namespace dslaunch
