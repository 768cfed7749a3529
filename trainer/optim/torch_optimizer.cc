#include "trainer/optim/torch_optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <map>
#include <typeinfo>
#include <utility>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr char kFactory[] = "InitializeOptions::make_optimizer: ";

bool IsElementWise(const torch::optim::Optimizer& optimizer) {
  const std::type_info& type = typeid(optimizer);
  return type == typeid(torch::optim::Adam) || type == typeid(torch::optim::AdamW) ||
         type == typeid(torch::optim::SGD) || type == typeid(torch::optim::RMSprop) ||
         type == typeid(torch::optim::Adagrad);
}

void CheckKind(const torch::optim::Optimizer* optimizer, bool any) {
  if (optimizer == nullptr) RefuseInput(std::string(kFactory) + "the function returned none");
  if (dynamic_cast<const torch::optim::LBFGS*>(optimizer) != nullptr) {
    RefuseInput(std::string(kFactory) +
                "LBFGS computes the loss again in its step, which the engine cannot do; use "
                "another optimizer");
  }
  for (const auto& group : optimizer->param_groups()) {
    try {
      group.options().get_lr();
    } catch (const c10::Error&) {
      RefuseInput(std::string(kFactory) +
                  "the options of the optimizer have no learning rate; override get_lr and set_lr "
                  "in them");
    }
  }
  if (optimizer->param_groups().empty()) {
    RefuseInput(std::string(kFactory) + "the optimizer has no parameter group; give it one");
  }
  if (!any && !IsElementWise(*optimizer)) {
    RefuseInput(std::string(kFactory) +
                "at ZeRO stages 1 to 3, and at a parameter server, each rank updates slices of "
                "parameters, so an optimizer "
                "must treat each element by itself, as torch::optim's Adam, AdamW, SGD, RMSprop "
                "and Adagrad do; if yours does, set \"zero_allow_untested_optimizer\": true, else "
                "use stage 0 with all_reduce");
  }
}

// Throws unless the optimizer's groups contain exactly `weights`.
void CheckWeights(const std::vector<NamedTensor>& weights,
                  const torch::optim::Optimizer& optimizer) {
  std::map<const at::TensorImpl*, std::string> left;
  for (const auto& [name, tensor] : weights) left.emplace(tensor.unsafeGetTensorImpl(), name);
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& tensor : group.params()) {
      if (left.erase(tensor.unsafeGetTensorImpl()) > 0) continue;
      RefuseInput(std::string(kFactory) +
                  "the optimizer has a tensor that it was not given, which the engine would not "
                  "update; construct it of the function's argument, not of the model's parameters");
    }
  }
  if (left.empty()) return;
  RefuseInput(std::string(kFactory) + "the optimizer leaves out the parameter " +
              left.begin()->second +
              "; give it all tensors of the function's argument, and freeze "
              "before Initialize what is not to be trained");
}

class TorchOptimizer : public Optimizer {
 public:
  TorchOptimizer(const Inputs& inputs, std::shared_ptr<torch::optim::Optimizer> optimizer)
      : Optimizer(inputs, {}), optimizer_(std::move(optimizer)) {}

  std::vector<double> lrs() const override {
    std::vector<double> lrs;
    for (const auto& group : optimizer_->param_groups()) lrs.push_back(group.options().get_lr());
    return lrs;
  }
  void SetLrs(const std::vector<double>& lrs) override {
    size_t i = 0;
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(lrs.at(i++));
  }

 private:
  void Update(Group& group, const std::vector<at::Tensor>& gradients) override {
    for (size_t i = 0; i < gradients.size(); ++i) {
      group.parameters[i].mutable_grad() = gradients[i];
    }
    optimizer_->step();
    for (at::Tensor& weight : group.parameters) weight.mutable_grad().reset();
  }

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace

std::unique_ptr<Optimizer> WrapTorchOptimizer(const OptimizerFactory& make,
                                              const std::vector<NamedTensor>& parameters,
                                              const std::vector<WeightPart>& parts, bool any) {
  std::vector<NamedTensor> weights;
  for (const WeightPart& part : parts) {
    weights.push_back({parameters[part.parameter].name, part.weight});
  }
  std::shared_ptr<torch::optim::Optimizer> optimizer = make(weights);
  CheckKind(optimizer.get(), any);
  CheckWeights(weights, *optimizer);
  const OptimizerConfig config;
  const LrSchedule schedule = ConstantLr{};
  const std::vector<ParameterInfo> elsewhere;
  const ZerosBeside zeros;
  return std::make_unique<TorchOptimizer>(
      Optimizer::Inputs{config, schedule, parameters, parts, elsewhere, zeros},
      std::move(optimizer));
}

}  // namespace dslaunch
