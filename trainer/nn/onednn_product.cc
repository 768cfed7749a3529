#include "trainer/nn/onednn_product.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string_view>

namespace dslaunch {
namespace {

// Name of the operator that torch.compile uses for linear layers, with the arguments x [rows, in],
// weight [out, in] and bias.
constexpr char kOperator[] = "mkldnn::_linear_pointwise";
using Operator = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                            std::string_view, c10::List<std::optional<at::Scalar>>,
                            std::optional<std::string_view>);

// Minimum number of multiplications; smaller products take less than 20 us.
constexpr int64_t kSmallest = 1 << 20;

bool IsPlain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
         tensor.scalar_type() == at::kFloat;
}

bool IsSeenByAutograd(const at::Tensor& tensor) {
  return tensor.requires_grad() && at::GradMode::is_enabled() &&
         !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradFunctionality);
}

// Returns the operator; nullopt if LibTorch was built without oneDNN.
const std::optional<c10::TypedOperatorHandle<Operator>>& FindOperator() {
  static const auto found = []() -> std::optional<c10::TypedOperatorHandle<Operator>> {
    const auto handle = c10::Dispatcher::singleton().findSchema({kOperator, ""});
    if (!handle || !handle->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
    return handle->typed<Operator>();
  }();
  return found;
}

}  // namespace

std::optional<at::Tensor> OneDnnProduct(const at::Tensor& x, const at::Tensor& m,
                                        const at::Tensor& bias) {
  if (!IsPlain(x) || !IsPlain(m) || IsSeenByAutograd(x) || IsSeenByAutograd(m)) return std::nullopt;
  if (bias.defined() && (!IsPlain(bias) || IsSeenByAutograd(bias))) return std::nullopt;
  if (x.size(0) * m.size(0) * m.size(1) < kSmallest || !x.is_contiguous()) return std::nullopt;
  const at::Tensor weight = m.t();
  if (!weight.is_contiguous() && !m.is_contiguous()) return std::nullopt;
  if (at::autocast::is_autocast_enabled(at::kCPU)) return std::nullopt;
  if (!at::globalContext().userEnabledMkldnn() || !FindOperator()) return std::nullopt;
  const c10::List<std::optional<at::Scalar>> none;
  return FindOperator()->call(x, weight,
                              bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt,
                              /*attr=*/"none", /*scalars=*/none, /*algorithm=*/"");
}

}  // namespace dslaunch
