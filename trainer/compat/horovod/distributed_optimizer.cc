#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "dslaunch/horovod.h"
#include "trainer/base/train_error.h"

namespace dslaunch::horovod {
namespace {

[[noreturn]] void Refuse(const std::string& problem) {
  throw TrainError(ExitCode::kUsage, "DistributedOptimizer: " + problem);
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Returns the trained parameters of the optimizer's groups with names, in the groups' order.
std::vector<NamedTensor> NameParameters(const torch::optim::Optimizer& optimizer,
                                        const std::vector<NamedTensor>& named) {
  std::set<std::string> names;
  std::vector<std::string> twice;
  std::map<const at::TensorImpl*, std::string> name_of;
  for (const auto& [name, tensor] : named) {
    if (!names.insert(name).second) twice.push_back(name);
    name_of.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  if (!twice.empty()) {
    Refuse("names of named_parameters must be unique; there are several tensors named " +
           Joined(twice));
  }
  std::vector<NamedTensor> parameters;
  std::vector<std::string> unnamed;
  size_t group_index = 0;
  for (const auto& group : optimizer.param_groups()) {
    size_t index = 0;
    for (const at::Tensor& parameter : group.params()) {
      const std::string place = std::to_string(group_index) + "." + std::to_string(index++);
      const auto found = name_of.find(parameter.unsafeGetTensorImpl());
      if (named.empty()) {
        parameters.push_back({"allreduce.parameter." + place, parameter});
      } else if (found != name_of.end()) {
        parameters.push_back({found->second, parameter});
      } else {
        unnamed.push_back(place + c10::str(" (shape ", parameter.sizes(), ")"));
      }
    }
    ++group_index;
  }
  if (!unnamed.empty()) {
    Refuse("named_parameters lacks parameters that the optimizer has; GROUP.POSITION of them: " +
           Joined(unnamed));
  }
  std::erase_if(parameters, [](const NamedTensor& item) { return !item.tensor.requires_grad(); });
  return parameters;
}

// Returns groups of indices in `parameters`. Each parameter is in exactly one group.
std::vector<std::vector<size_t>> MakeGroups(const std::vector<NamedTensor>& parameters,
                                            const DistributedOptimizerOptions& options) {
  if (options.num_groups < 0) Refuse("num_groups must not be negative");
  if (options.num_groups > 0 && !options.groups.empty()) Refuse("give num_groups or groups");
  std::vector<std::vector<size_t>> groups;
  if (options.num_groups > 0) {
    const size_t count = std::min(static_cast<size_t>(options.num_groups), parameters.size());
    for (size_t group = 0; group < count; ++group) {
      std::vector<size_t>& members = groups.emplace_back();
      for (size_t i = group * parameters.size() / count;
           i < (group + 1) * parameters.size() / count; ++i) {
        members.push_back(i);
      }
    }
    return groups;
  }
  std::vector<bool> grouped(parameters.size());
  for (const std::vector<at::Tensor>& tensors : options.groups) {
    std::vector<size_t> members;
    for (const at::Tensor& tensor : tensors) {
      const auto found = std::ranges::find_if(
          parameters, [&](const NamedTensor& item) { return item.tensor.is_same(tensor); });
      if (found == parameters.end()) continue;  // the parameter is not trained
      const auto position = static_cast<size_t>(found - parameters.begin());
      if (grouped[position]) Refuse("the parameter " + found->name + " is in two groups");
      grouped[position] = true;
      members.push_back(position);
    }
    if (!members.empty()) groups.push_back(std::move(members));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!grouped[i]) groups.push_back({i});
  }
  return groups;
}

// Calls a function whenever a backward pass has added a gradient to a parameter's grad().
class ArrivalHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit ArrivalHook(std::function<void()> call) : call_(std::move(call)) {}
  // Calls the function if there is a gradient. Autograd also runs this hook if an operation had no
  // gradient for the parameter, so grad() may be undefined.
  void operator()(const torch::autograd::Variable& parameter) override {
    if (parameter.grad().defined()) call_();
  }

 private:
  const std::function<void()> call_;
};

// Throws if the parameter already has such a hook, because a tensor can have only one.
void CheckHookIsFree(const NamedTensor& parameter) {
  if (torch::autograd::impl::get_autograd_meta(parameter.tensor) == nullptr) return;
  if (torch::autograd::impl::post_acc_grad_hooks(parameter.tensor) == nullptr) return;
  Refuse("the parameter " + parameter.name +
         " has a post-accumulate-grad hook already: of the program, or of an engine or another "
         "DistributedOptimizer that trains it; remove that first");
}

}  // namespace

class DistributedOptimizer::Impl {
 public:
  Impl(std::shared_ptr<torch::optim::Optimizer> wrapped, const std::vector<NamedTensor>& named,
       const DistributedOptimizerOptions& options)
      : optimizer(std::move(wrapped)),
        options_(options),
        parameters_(NameParameters(*optimizer, named)),
        groups_(MakeGroups(parameters_, options)),
        group_of_(parameters_.size()),
        passes_left_(parameters_.size(), options.backward_passes_per_step),
        ready_(groups_.size()),
        handles_(groups_.size()) {
    if (options.backward_passes_per_step < 1) Refuse("backward_passes_per_step must be at least 1");
    if (!(options.gradient_predivide_factor > 0)) {
      Refuse("gradient_predivide_factor must be positive");
    }
    if (options.gradient_predivide_factor != 1 && options.op != Op::kAverage) {
      Refuse("gradient_predivide_factor is of Op::kAverage only");
    }
    for (size_t group = 0; group < groups_.size(); ++group) {
      for (const size_t i : groups_[group]) group_of_[i] = group;
    }
    if (!options.process_set.Included()) return;
    for (const NamedTensor& parameter : parameters_) CheckHookIsFree(parameter);
    hooked_ = true;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameters_[i].tensor, std::make_unique<ArrivalHook>([this, i] { Arrive(i); }));
    }
  }
  ~Impl() {
    if (!hooked_) return;
    for (const NamedTensor& parameter : parameters_) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
    }
  }

  void Synchronize() {
    synchronized = true;
    if (!hooked_) return;
    for (size_t group = 0; group < groups_.size(); ++group) {
      if (!handles_[group]) Send(group);
    }
    for (std::optional<Handle>& handle : handles_) SynchronizeGroup(*handle);
    handles_.assign(groups_.size(), std::nullopt);
    passes_left_.assign(parameters_.size(), options_.backward_passes_per_step);
    ready_.assign(groups_.size(), 0);
  }

  bool travels() const {
    return std::ranges::any_of(handles_, [](const auto& handle) { return handle.has_value(); });
  }

  const std::shared_ptr<torch::optim::Optimizer> optimizer;
  bool synchronized = false;
  bool skips = false;

 private:
  void Arrive(size_t parameter) {
    if (passes_left_[parameter] == 0) {
      Refuse("the parameter " + parameters_[parameter].name +
             " got a gradient after its exchange had begun: there were more backward passes than "
             "backward_passes_per_step (" +
             std::to_string(options_.backward_passes_per_step) +
             ") before Step; raise backward_passes_per_step to add gradients up");
    }
    if (--passes_left_[parameter] > 0) return;
    const size_t group = group_of_[parameter];
    if (++ready_[group] == groups_[group].size()) Send(group);
  }

  void Send(size_t group) {
    std::vector<at::Tensor> gradients;
    for (const size_t i : groups_[group]) {
      const at::Tensor& parameter = parameters_[i].tensor;
      // Other ranks may have a gradient of this parameter, so this rank takes part with zeros.
      if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
      gradients.push_back(parameter.grad());
    }
    ReduceOptions reduce;
    reduce.name = "gradient." + parameters_[groups_[group][0]].name;
    reduce.op = options_.op;
    reduce.compression = options_.compression;
    reduce.process_set = options_.process_set;
    reduce.prescale_factor = 1 / options_.gradient_predivide_factor;
    reduce.postscale_factor = options_.gradient_predivide_factor;
    handles_[group] = GroupedAllreduceAsync_(gradients, reduce);
  }

  const DistributedOptimizerOptions options_;
  const std::vector<NamedTensor> parameters_;
  const std::vector<std::vector<size_t>> groups_;
  std::vector<size_t> group_of_;  // index of the group of each parameter
  // By parameter: number of backward passes until the gradient is sent.
  std::vector<int> passes_left_;
  std::vector<size_t> ready_;  // by group: number of parameters whose gradients are ready
  std::vector<std::optional<Handle>> handles_;  // pending exchange of each group
  bool hooked_ = false;                         // false if this rank is not in the process set
};

DistributedOptimizer::DistributedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                           const std::vector<NamedTensor>& named_parameters,
                                           const DistributedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(std::move(optimizer), named_parameters, options)) {}

DistributedOptimizer::~DistributedOptimizer() = default;

void DistributedOptimizer::ZeroGrad() {
  if (impl_->travels()) {
    Refuse("ZeroGrad after a backward pass and before Step or Synchronize: gradients travel");
  }
  impl_->optimizer->zero_grad();
}

void DistributedOptimizer::Synchronize() { impl_->Synchronize(); }

void DistributedOptimizer::Step() {
  if (!impl_->skips) {
    impl_->Synchronize();
  } else if (!impl_->synchronized) {
    Refuse(
        "Step within SkipSynchronize without Synchronize before it: the gradients are those of "
        "this rank alone");
  }
  impl_->optimizer->step();
  impl_->synchronized = false;
}

torch::optim::Optimizer& DistributedOptimizer::optimizer() const { return *impl_->optimizer; }

DistributedOptimizer::SkipSynchronizeScope::SkipSynchronizeScope(DistributedOptimizer& optimizer)
    : optimizer_(optimizer) {
  optimizer_.impl_->skips = true;
}
DistributedOptimizer::SkipSynchronizeScope::~SkipSynchronizeScope() {
  optimizer_.impl_->skips = false;
}

}  // namespace dslaunch::horovod
