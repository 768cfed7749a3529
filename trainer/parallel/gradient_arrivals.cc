#include "trainer/parallel/gradient_arrivals.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

class Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(std::function<void()> call) : call_(std::move(call)) {}
  // Calls `call_` if the gradient is defined. Autograd runs this hook even if an operation produced
  // no gradient for the parameter.
  void operator()(const torch::autograd::Variable& parameter) override {
    if (parameter.grad().defined()) call_();
  }

 private:
  std::function<void()> call_;
};

}  // namespace

void CheckHooksAreFree(const std::vector<NamedTensor>& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (torch::autograd::impl::get_autograd_meta(tensor) == nullptr) continue;
    const auto& hook = torch::autograd::impl::post_acc_grad_hooks(tensor);
    if (hook == nullptr) continue;
    const bool of_engine = dynamic_cast<const Hook*>(hook.get()) != nullptr;
    throw TrainError(ExitCode::kBadInput,
                     "the parameter " + name +
                         (of_engine ? " belongs to another engine, and only one may train it; "
                                      "destroy that engine first, or give each engine a model of "
                                      "its own"
                                    : " has a post-accumulate-grad hook of the program, which the "
                                      "engine needs itself; remove the hook before Initialize"));
  }
}

void RefuseWithoutGradient(const NamedTensor& parameter) {
  RefuseInput("the parameter " + parameter.name + " got no gradient: " +
              (parameter.tensor.requires_grad()
                   ? "the model's output does not depend on it; leave it out of the model"
                   : "it was frozen after the engine was made; freeze it before Initialize") +
              ", or set zero_optimization.ignore_unused_parameters");
}

GradientArrivals::GradientArrivals(std::vector<NamedTensor> parameters,
                                   std::function<void(size_t)> arrived)
    : parameters_(std::move(parameters)),
      on_arrival_(std::move(arrived)),
      arrived_(parameters_.size()) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameters_[i].tensor, std::make_unique<Hook>([this, i] { Arrive(i); }));
  }
}

GradientArrivals::~GradientArrivals() {
  for (const NamedTensor& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
  }
}

void GradientArrivals::ExpectOnce() {
  once_ = true;
  arrived_.assign(parameters_.size(), false);
  order_.clear();
}

void GradientArrivals::AllowAny() { once_ = false; }

void GradientArrivals::Arrive(size_t parameter) {
  if (parameters_[parameter].tensor.grad().layout() != at::kStrided) {
    throw TrainError(ExitCode::kBadInput,
                     "the gradient of the parameter " + parameters_[parameter].name +
                         " is sparse, but the ranks exchange dense gradients; construct the "
                         "embedding with sparse(false)");
  }
  if (once_) {
    if (arrived_[parameter]) {
      throw TrainError(
          ExitCode::kBadInput,
          "the parameter " + parameters_[parameter].name +
              " got a second gradient after the first was exchanged between ranks; call "
              "Backward once for each Forward, and Step after it");
    }
    arrived_[parameter] = true;
    order_.push_back(parameter);
  }
  on_arrival_(parameter);
}

}  // namespace dslaunch
