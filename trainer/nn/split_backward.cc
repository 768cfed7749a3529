#include "trainer/nn/split_backward.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <utility>

#include "trainer/device/fused_kernels.h"
#include "trainer/nn/onednn_product.h"

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

// Kind of the thread-local value that carries Deferred; LibTorch uses this kind only in its own
// tests. LibTorch passes a thread's value on to its backward passes, which may run on another
// thread for a device.
constexpr auto kKind = c10::DebugInfoKind::TEST_INFO;

struct Deferred : c10::DebugInfoBase {
  explicit Deferred(WeightGradients& gradients) : into(gradients) {}
  WeightGradients& into;
};

// Returns the object for deferred gradients; null if the current backward pass defers nothing.
WeightGradients* DeferredInto() {
  const auto* deferred = dynamic_cast<Deferred*>(c10::ThreadLocalDebugInfo::get(kKind));
  return deferred == nullptr ? nullptr : &deferred->into;
}

// Returns whether a matrix is column-major. LibTorch computes the gradient of such a factor in the
// same layout, so this code must do the same for equal bits.
bool ByColumns(const at::Tensor& matrix) {
  return matrix.stride(0) == 1 && matrix.stride(1) == matrix.size(0);
}

// Reshapes [..., n] to [rows, n].
at::Tensor Rows(const at::Tensor& tensor) {
  if (tensor.dim() == 2) return tensor;
  const int64_t rows =
      c10::multiply_integers(tensor.sizes().begin(), tensor.sizes().begin() + tensor.dim() - 1);
  return tensor.reshape({rows, tensor.size(-1)});
}

// The gradient with respect to a product, in the product's shape or as rows, and the gradient of
// the bias if both were computed together.
struct ProductGradient {
  at::Tensor rows, bias;
};

// Computes y = x m + bias and its gradients, where m [in, out] is the weight or its transpose.
struct Product {
  bool transposed = false;
  // True if the product itself adds the bias, which rounds differently than a separate addition.
  bool fused = true;
  bool by_columns = false;  // true if m is column-major, [in, out]
  bool by_onednn = false;   // true to use oneDNN if possible, which rounds differently

  at::Tensor Matrix(const at::Tensor& weight) const { return transposed ? weight.t() : weight; }

  at::Tensor Compute(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const {
    const at::Tensor rows = Rows(x), matrix = Matrix(weight);
    const at::Tensor y = Multiply(rows, matrix, bias);
    if (x.dim() == 2) return y;
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = y.size(1);
    return y.view(sizes);
  }

  // Returns the gradient with respect to x. All tensors are [rows, columns].
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
  at::Tensor BiasGradient(const ProductGradient& gradient) const {
    if (gradient.bias.defined()) return gradient.bias;
    const at::Tensor rows = Rows(gradient.rows);
    FusedKernels* const kernels = at::GradMode::is_enabled() ? nullptr : FusedKernelsFor(rows);
    if (kernels != nullptr) return kernels->SumRows(rows);
    // Autograd sums a gradient that is larger than its tensor, so the rows are not summed here.
    return fused ? rows : gradient.rows;
  }
};

// The operation that follows a product. A kernel of the device computes the operation's backward
// pass together with the gradient of the bias.
enum class Then { kNothing, kGelu, kThirds };

at::Tensor ContiguousRows(const at::Tensor& tensor) { return Rows(tensor).contiguous(); }

// Returns the gradient of a product, [rows, columns], given the gradient of its GELU.
ProductGradient UndoGelu(const at::Tensor& product, const autograd::variable_list& gradients) {
  const FusedKernels::RowsAndSums found =
      FusedKernelsFor(product)->GradientOfGelu(ContiguousRows(gradients[0]), product);
  return {found.rows, found.sums};
}
ProductGradient JoinThirds(const autograd::variable_list& gradients) {
  const at::Tensor& one = *std::ranges::find_if(gradients, &at::Tensor::defined);
  std::array<at::Tensor, 3> thirds;
  std::ranges::transform(gradients, thirds.begin(), [&](const at::Tensor& gradient) {
    return ContiguousRows(gradient.defined() ? gradient : at::zeros_like(one));
  });
  const FusedKernels::RowsAndSums found = FusedKernelsFor(thirds[0])->JoinThirds(thirds);
  return {found.rows, found.sums};
}

// Graph node that holds the deferred gradients of a layer's weight and bias. As a node, it lets
// autograd sum and accumulate these gradients and run hooks as for all gradients.
class WeightNode : public autograd::Node {
 public:
  // Creates the node. `place` is the sequence number of the node that defers the gradients.
  WeightNode(uint64_t place, autograd::edge_list edges, const Product& product, at::Tensor x,
             ProductGradient gradient)
      : Node(place, std::move(edges)),
        product_(product),
        x_(std::move(x)),
        gradient_(std::move(gradient)) {
    add_input_metadata(Signal());
  }

  std::string name() const override { return "dslaunch::WeightGradient"; }
  // Returns an empty gradient, which only starts this node.
  at::Tensor Signal() const { return at::empty({0}, gradient_.rows.options()); }
  void release_variables() override {
    x_.reset();
    gradient_ = {};
  }

 protected:
  autograd::variable_list apply(autograd::variable_list&&) override {
    autograd::variable_list results(2);
    if (should_compute_output(0)) results[0] = product_.WeightGradient(Rows(gradient_.rows), x_);
    if (should_compute_output(1)) results[1] = product_.BiasGradient(gradient_);
    return results;
  }

 private:
  Product product_;
  at::Tensor x_;  // input of the layer, [rows, in]
  ProductGradient gradient_;
};

// Graph node of a product, whose next edges lead to x, weight and bias.
class ProductNode : public autograd::Node {
 public:
  // Creates the node. `y` is the product, which is kept only for GELU.
  ProductNode(autograd::edge_list edges, const Product& product, const at::Tensor& x,
              const at::Tensor& weight, Then then, const at::Tensor& y)
      : Node(std::move(edges)), product_(product), then_(then), x_(x, /*is_output=*/false) {
    if (should_compute_output(0)) weight_ = autograd::SavedVariable(weight, /*is_output=*/false);
    if (then == Then::kGelu) y_ = autograd::SavedVariable(Rows(y), /*is_output=*/false);
  }

  std::string name() const override { return "dslaunch::Product"; }
  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
    y_.reset_data();
  }

 protected:
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    autograd::variable_list results(3);
    if (std::ranges::none_of(gradients, &at::Tensor::defined)) return results;
    const ProductGradient gradient = OfProduct(gradients);
    const at::Tensor x = x_.unpack();
    const at::Tensor x_rows = Rows(x), gradient_rows = Rows(gradient.rows);
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
  ProductGradient OfProduct(const autograd::variable_list& gradients) const {
    if (then_ == Then::kNothing) return {gradients[0], {}};
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "the trainer's own kernels have no second derivatives");
    return then_ == Then::kGelu ? UndoGelu(y_.unpack(), gradients) : JoinThirds(gradients);
  }

  Product product_;
  Then then_;
  autograd::SavedVariable x_, weight_, y_;
};

bool IsParameter(const at::Tensor& tensor) { return tensor.requires_grad() && tensor.is_leaf(); }

// Returns whether a gradient may have to be deferred and ProductNode gives the same values as
// at::linear.
bool Defers(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::GradMode::is_enabled() && IsParameter(weight) &&
         (!bias.defined() || (bias.dim() == 1 && (!bias.requires_grad() || bias.is_leaf()))) &&
         x.dim() > 0 && weight.dim() == 2 && x.layout() == at::kStrided && x.is_floating_point() &&
         !at::autocast::is_autocast_enabled(x.device().type());
}

// Returns the results of applying `then` to the product `y`, [..., columns].
autograd::variable_list Outcome(const at::Tensor& y, Then then) {
  switch (then) {
    case Then::kGelu:
      return {FusedKernelsFor(y)->Gelu(Rows(y)).view(y.sizes())};
    case Then::kThirds:
      return y.chunk(3, -1);
    case Then::kNothing:
      break;
  }
  return {y};
}

// Computes the product and `then` with a ProductNode as history. Precondition: HasKernels(x),
// unless `then` is kNothing.
autograd::variable_list Apply(const Product& product, const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias, Then then = Then::kNothing) {
  at::Tensor y;
  autograd::variable_list results;
  {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    y = product.Compute(x, weight, bias);
    results = Outcome(y, then);
  }
  const std::shared_ptr<autograd::Node> node(
      new ProductNode(autograd::collect_next_edges(x, weight, bias), product, x, weight, then, y),
      autograd::deleteNode);
  autograd::set_history(results, node);
  return results;
}

Product Conv1DProduct(const at::Tensor& weight) {
  return {.by_columns = ByColumns(weight), .by_onednn = true};
}

// Returns whether the device has fused kernels for products of x.
bool HasKernels(const at::Tensor& x) {
  return x.dim() > 1 && FusedKernelsFor(x) != nullptr &&
         !at::autocast::is_autocast_enabled(x.device().type());
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
               x, weight, bias)[0];
}

at::Tensor ApplyConv1D(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const Product product = Conv1DProduct(weight);
  return Defers(x, weight, bias) ? Apply(product, x, weight, bias)[0]
                                 : product.Compute(x, weight, bias);
}

at::Tensor ApplyConv1DAndGelu(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias) {
  if (!HasKernels(x)) return at::gelu(ApplyConv1D(x, weight, bias), "tanh");
  const Product product = Conv1DProduct(weight);
  if (Defers(x, weight, bias)) return Apply(product, x, weight, bias, Then::kGelu)[0];
  const at::Tensor y = product.Compute(x, weight, bias);
  return y.requires_grad() ? at::gelu(y, "tanh") : Outcome(y, Then::kGelu)[0];
}

std::array<at::Tensor, 3> ApplyConv1DInThirds(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& bias) {
  const bool fused = HasKernels(x) && Defers(x, weight, bias);
  const autograd::variable_list thirds =
      fused ? Apply(Conv1DProduct(weight), x, weight, bias, Then::kThirds)
            : ApplyConv1D(x, weight, bias).chunk(3, -1);
  return {thirds[0], thirds[1], thirds[2]};
}

}  // namespace dslaunch
