#include "trainer/profile/forward_meter.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include "base/deadline.h"
#include "trainer/profile/flop_formula.h"

namespace dslaunch {
namespace {

thread_local ForwardMeter* current_meter = nullptr;

Shape ShapeOf(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return {};
  return value.toTensor().sizes().vec();
}

std::pair<const void*, int64_t> PlaceOf(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return {};
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset()};
}

}  // namespace

struct ForwardMeter::Hooks {
  struct Context : at::ObserverContext {
    OperatorCall call;
    bool counts = false;  // true if this call's operations count, not those of nested calls
    std::optional<std::string> converted;  // name of the module whose parameter the call converts
    Clock::time_point start;
  };

  static std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction& function) {
    if (current_meter == nullptr || torch::autograd::get_current_node() != nullptr) return nullptr;
    ForwardMeter& meter = *current_meter;
    auto context = std::make_unique<Context>();
    const std::string_view name = function.name();
    if (meter.depth_++ == 0) meter.operators_.push_back({});
    std::optional<std::string>& module = meter.operators_.back().module;
    for (const c10::IValue& input : function.inputs()) {
      if (!input.isTensor()) continue;
      const auto found = meter.module_of_.find(PlaceOf(input.toTensor()));
      if (found == meter.module_of_.end()) continue;
      module = found->second;
      if (name == "aten::_to_copy") context->converted = found->second;
    }
    if (HasFlopFormula(name) && meter.formula_depth_++ == 0) {
      context->counts = true;
      for (const c10::IValue& input : function.inputs()) {
        context->call.inputs.push_back(ShapeOf(input));
      }
      constexpr size_t kTransposed = 6;  // index of the argument `transposed` of aten::convolution
      const auto inputs = function.inputs();
      context->call.transposed = inputs.size() > kTransposed && inputs[kTransposed].isBool() &&
                                 inputs[kTransposed].toBool();
    }
    context->start = Clock::now();
    return context;
  }

  static void End(const at::RecordFunction& function, at::ObserverContext* observed) {
    auto* context = static_cast<Context*>(observed);
    if (context == nullptr || current_meter == nullptr) return;
    ForwardMeter& meter = *current_meter;
    ForwardOp& outermost = meter.operators_.back();
    const std::string_view name = function.name();
    if (HasFlopFormula(name)) --meter.formula_depth_;
    if (context->counts) {
      if (!function.outputs().empty()) context->call.output = ShapeOf(function.outputs()[0]);
      outermost.flops += OperatorFlops(name, context->call);
    }
    // A parameter that is converted to another dtype still belongs to its module, so the result is
    // recorded too.
    if (context->converted && !function.outputs().empty() && function.outputs()[0].isTensor()) {
      meter.module_of_[PlaceOf(function.outputs()[0].toTensor())] = *context->converted;
    }
    if (--meter.depth_ > 0) return;
    outermost.seconds = std::chrono::duration<double>(Clock::now() - context->start).count();
  }
};

ForwardMeter::ForwardMeter(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    if (!item.value().defined()) continue;
    const std::string& name = item.key();
    const size_t dot = name.rfind('.');
    module_of_[PlaceOf(item.value())] = dot == std::string::npos ? "" : name.substr(0, dot);
  }
  current_meter = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(Hooks::Begin, Hooks::End)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

ForwardMeter::~ForwardMeter() {
  at::removeCallback(handle_);
  current_meter = nullptr;
}

double ForwardMeter::flops() const {
  double flops = 0;
  for (const ForwardOp& op : operators_) flops += op.flops;
  return flops;
}

}  // namespace dslaunch
