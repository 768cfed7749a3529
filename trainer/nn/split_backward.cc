#include "trainer/nn/split_backward.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

#include "trainer/device/fused_kernels.h"
#include "trainer/nn/onednn_product.h"

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

// LibTorch keeps this kind for its own tests, and uses it nowhere. What a thread has of it goes
// with its backward passes, which run in another thread on a device.
constexpr auto kKind = c10::DebugInfoKind::TEST_INFO;

struct Deferred : c10::DebugInfoBase {
  explicit Deferred(WeightGradients& gradients) : into(gradients) {}
  WeightGradients& into;
};

// Null: the backward pass that is under way defers nothing.
WeightGradients* DeferredInto() {
  const auto* deferred = dynamic_cast<Deferred*>(c10::ThreadLocalDebugInfo::get(kKind));
  return deferred == nullptr ? nullptr : &deferred->into;
}

// Whether a matrix lies by columns. LibTorch computes the gradient of such a factor as it lies.
bool ByColumns(const at::Tensor& matrix) {
  return matrix.stride(0) == 1 && matrix.stride(1) == matrix.size(0);
}

// [..., n] -> [rows, n]
at::Tensor Rows(const at::Tensor& tensor) {
  if (tensor.dim() == 2) return tensor;
  const int64_t rows =
      c10::multiply_integers(tensor.sizes().begin(), tensor.sizes().begin() + tensor.dim() - 1);
  return tensor.reshape({rows, tensor.size(-1)});
}

// y = x m + bias, where m [in, out] is the weight, or its transpose.
struct Product {
  bool transposed = false;
  // The bias is added by the product itself, and not afterwards: other bits.
  bool fused = true;
  bool by_columns = false;  // m
  bool by_onednn = false;   // where it can: other bits

  at::Tensor Matrix(const at::Tensor& weight) const { return transposed ? weight.t() : weight; }

  at::Tensor Compute(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const {
    const at::Tensor rows = Rows(x), matrix = Matrix(weight);
    const at::Tensor y = Multiply(rows, matrix, bias);
    if (x.dim() == 2) return y;
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = y.size(1);
    return y.view(sizes);
  }

  // All of rows.
  at::Tensor InputGradient(const at::Tensor& gradient, const at::Tensor& x,
                           const at::Tensor& weight) const {
    const at::Tensor matrix = Matrix(weight);
    if (by_onednn) {
      if (const auto found = OneDnnProduct(gradient, matrix.t())) return *found;
    }
    return ByColumns(x) ? matrix.mm(gradient.t()).t() : gradient.mm(matrix.t());
  }
  at::Tensor WeightGradient(const at::Tensor& gradient, const at::Tensor& x) const {
    const at::Tensor found = by_columns ? gradient.t().mm(x).t() : x.t().mm(gradient);
    return transposed ? found.t() : found;
  }
  at::Tensor Multiply(const at::Tensor& rows, const at::Tensor& matrix,
                      const at::Tensor& bias) const {
    if (by_onednn) {
      if (const auto found = OneDnnProduct(rows, matrix, bias)) return *found;
    }
    if (fused && bias.defined()) return at::addmm(bias, rows, matrix);
    at::Tensor y = at::mm(rows, matrix);
    if (bias.defined()) y.add_(bias);
    return y;
  }
  at::Tensor BiasGradient(const at::Tensor& gradient) const {
    const at::Tensor rows = Rows(gradient);
    if (FusedKernels* const kernels = FusedKernelsFor(rows)) {
      return kernels->SumRows(rows);
    }
    // Still to be added up over rows, as autograd does with what is larger than its tensor.
    return fused ? rows : gradient;
  }
};

// The deferred gradients of one layer's weight and bias. A node of its own, so that autograd
// handles them as it does all gradients: it sums and accumulates them and runs hooks.
class WeightNode : public autograd::Node {
 public:
  // `place`: the sequence number of the node that defers them.
  WeightNode(uint64_t place, autograd::edge_list edges, const Product& product, at::Tensor x,
             at::Tensor gradient)
      : Node(place, std::move(edges)),
        product_(product),
        x_(std::move(x)),
        gradient_(std::move(gradient)) {
    add_input_metadata(Signal());
  }

  std::string name() const override { return "dslaunch::WeightGradient"; }
  // Its input, which carries no data.
  at::Tensor Signal() const { return at::empty({0}, gradient_.options()); }
  void release_variables() override {
    x_.reset();
    gradient_.reset();
  }

 protected:
  autograd::variable_list apply(autograd::variable_list&&) override {
    autograd::variable_list results(2);
    if (should_compute_output(0)) results[0] = product_.WeightGradient(Rows(gradient_), x_);
    if (should_compute_output(1)) results[1] = product_.BiasGradient(gradient_);
    return results;
  }

 private:
  Product product_;
  at::Tensor x_;         // [rows, in]
  at::Tensor gradient_;  // of y, in its shape
};

// Next edges: x, weight, bias.
class ProductNode : public autograd::Node {
 public:
  ProductNode(autograd::edge_list edges, const Product& product, const at::Tensor& x,
              const at::Tensor& weight)
      : Node(std::move(edges)), product_(product), x_(x, /*is_output=*/false) {
    if (should_compute_output(0)) weight_ = autograd::SavedVariable(weight, /*is_output=*/false);
  }

  std::string name() const override { return "dslaunch::Product"; }
  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
  }

 protected:
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    autograd::variable_list results(3);
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return results;
    const at::Tensor x = x_.unpack();
    const at::Tensor x_rows = Rows(x), gradient_rows = Rows(gradient);
    if (task_should_compute_output(0)) {
      results[0] =
          product_.InputGradient(gradient_rows, x_rows, weight_.unpack()).reshape(x.sizes());
    }
    const bool weight_wanted = task_should_compute_output(1);
    const bool bias_wanted = task_should_compute_output(2);
    WeightGradients* const deferred_into = DeferredInto();
    if (deferred_into != nullptr && !at::GradMode::is_enabled()) {
      if (!weight_wanted && !bias_wanted) return results;
      autograd::edge_list edges = {weight_wanted ? next_edge(1) : autograd::Edge(),
                                   bias_wanted ? next_edge(2) : autograd::Edge()};
      deferred_into->Add(std::make_shared<WeightNode>(sequence_nr(), std::move(edges), product_,
                                                      x_rows.detach(), gradient));
      return results;
    }
    if (weight_wanted) results[1] = product_.WeightGradient(gradient_rows, x_rows);
    if (bias_wanted) results[2] = product_.BiasGradient(gradient);
    return results;
  }

 private:
  Product product_;
  autograd::SavedVariable x_, weight_;
};

bool IsParameter(const at::Tensor& tensor) { return tensor.requires_grad() && tensor.is_leaf(); }

// Whether there is a gradient to defer, and at::linear would compute the same.
bool Defers(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::GradMode::is_enabled() && IsParameter(weight) &&
         (!bias.defined() || (bias.dim() == 1 && (!bias.requires_grad() || bias.is_leaf()))) &&
         x.dim() > 0 && weight.dim() == 2 && x.layout() == at::kStrided && x.is_floating_point() &&
         !at::autocast::is_autocast_enabled(x.device().type());
}

at::Tensor Apply(const Product& product, const at::Tensor& x, const at::Tensor& weight,
                 const at::Tensor& bias) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    y = product.Compute(x, weight, bias);
  }
  const std::shared_ptr<autograd::Node> node(
      new ProductNode(autograd::collect_next_edges(x, weight, bias), product, x, weight),
      autograd::deleteNode);
  autograd::set_history(y, node);
  return y;
}

}  // namespace

void WeightGradients::Add(std::shared_ptr<autograd::Node> work) {
  work_.push_back(std::move(work));
}

void WeightGradients::Compute() {
  if (empty()) return;
  autograd::edge_list roots;
  autograd::variable_list signals;
  for (std::shared_ptr<autograd::Node>& node : std::exchange(work_, {})) {
    signals.push_back(static_cast<const WeightNode&>(*node).Signal());
    roots.emplace_back(std::move(node), 0);
  }
  autograd::Engine::get_default_engine().execute(roots, signals, /*keep_graph=*/false,
                                                 /*create_graph=*/false, /*accumulate_grad=*/true);
}

DeferWeightGradients::DeferWeightGradients(WeightGradients& into)
    : guard_(kKind, std::make_shared<Deferred>(into)) {}

at::Tensor ApplyLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!Defers(x, weight, bias)) return at::linear(x, weight, bias);
  return Apply({.transposed = true,
                .fused = x.dim() == 2 || x.is_contiguous(),
                .by_columns = weight.stride(1) == 1 && weight.stride(0) == weight.size(1)},
               x, weight, bias);
}

at::Tensor ApplyConv1D(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const Product product = {.by_columns = ByColumns(weight), .by_onednn = true};
  return Defers(x, weight, bias) ? Apply(product, x, weight, bias)
                                 : product.Compute(x, weight, bias);
}

}  // namespace dslaunch
