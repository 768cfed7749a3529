#include "dslaunch/replicator.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/optimizer.h>

#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kBucketElements = 4 << 20;

const ProcessGroup& GroupOf(AutogradContext* context) {
  return *reinterpret_cast<const ProcessGroup*>(context->saved_data["group"].toInt());
}

void Keep(AutogradContext* context, const ProcessGroup& group) {
  context->saved_data["group"] = reinterpret_cast<int64_t>(&group);
}

// Autograd function that sums the tensors of all replicas. The backward pass also sums, because the
// loss of every replica depends on the tensor of every replica.
class SumFunction : public torch::autograd::Function<SumFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            const ProcessGroup* group) {
    Keep(context, *group);
    at::Tensor sum = tensor.clone();
    group->AllReduce(sum);
    return sum;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    at::Tensor sum = gradients[0].clone();
    GroupOf(context).AllReduce(sum);
    return {sum, at::Tensor()};
  }
};

class GatherFunction : public torch::autograd::Function<GatherFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            const ProcessGroup* group) {
    Keep(context, *group);
    return group->AllGather(tensor);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {GroupOf(context).ReduceScatter(gradients[0].contiguous()), at::Tensor()};
  }
};

class BroadcastFunction : public torch::autograd::Function<BroadcastFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            const ProcessGroup* group, int64_t source) {
    Keep(context, *group);
    context->saved_data["source"] = source;
    at::Tensor value = tensor.clone();
    group->Broadcast(value, static_cast<int>(source));
    return value;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const ProcessGroup& group = GroupOf(context);
    at::Tensor sum = gradients[0].clone();
    group.AllReduce(sum);
    if (group.rank() != context->saved_data["source"].toInt()) sum.zero_();
    return {sum, at::Tensor(), at::Tensor()};
  }
};

int64_t Share(int64_t whole, int parts, const char* what) {
  if (whole % parts == 0) return whole / parts;
  throw TrainError(ExitCode::kUsage, std::string(what) + " " + std::to_string(whole) +
                                         " cannot be parted equally among " +
                                         std::to_string(parts) + " replicas");
}

}  // namespace

int64_t InputContext::PerReplicaBatchSize(int64_t global_batch_size) const {
  return Share(global_batch_size, num_replicas_, "the global batch size");
}

at::Tensor ReplicaContext::AllReduce(const at::Tensor& tensor, ReduceOp op) const {
  if (op == ReduceOp::kSum || op == ReduceOp::kAverage) {
    const at::Tensor sum = SumFunction::apply(tensor, group_);
    return op == ReduceOp::kSum ? sum : sum / num_replicas();
  }
  at::Tensor result = tensor.detach().clone();
  group_->AllReduce(result, op);
  return result;
}

at::Tensor ReplicaContext::AllGather(const at::Tensor& tensor) const {
  return GatherFunction::apply(tensor, group_);
}

at::Tensor ReplicaContext::Broadcast(const at::Tensor& tensor, int source_replica) const {
  return BroadcastFunction::apply(tensor, group_, int64_t{source_replica});
}

at::Tensor ReplicaContext::Map(const RowFunction& function, const at::Tensor& tensor) const {
  const int64_t rows =
      Share(tensor.dim() == 0 ? 1 : tensor.size(0), num_replicas(), "Map: the number of rows");
  return function(tensor.narrow(0, rows * replica_id(), rows));
}

at::Tensor ReplicaContext::MapReduce(const RowFunction& function, const at::Tensor& tensor,
                                     ReduceOp op) const {
  return AllReduce(Map(function, tensor), op);
}

at::Tensor ReplicaContext::MapGather(const RowFunction& function, const at::Tensor& tensor) const {
  return AllGather(Map(function, tensor)).flatten(0, 1);
}

void ReplicatedOptimizer::ZeroGrad() {
  optimizer_->zero_grad();
  synchronized_ = false;
}

void ReplicatedOptimizer::Synchronize() {
  const at::NoGradGuard no_grad;
  // Gradients in the current message. Gradients of the same dtype share messages of up to
  // kBucketElements elements.
  std::vector<at::Tensor> bucket;
  int64_t elements = 0;
  const auto send = [&] {
    if (bucket.empty()) return;
    std::vector<at::Tensor> flat;
    for (const at::Tensor& gradient : bucket) flat.push_back(gradient.flatten());
    at::Tensor message = at::cat(flat);
    group_->AllReduce(message, ReduceOp::kAverage);
    int64_t start = 0;
    for (const at::Tensor& gradient : bucket) {
      gradient.copy_(message.narrow(0, start, gradient.numel()).view_as(gradient));
      start += gradient.numel();
    }
    bucket.clear();
    elements = 0;
  };
  for (const auto& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.requires_grad()) continue;
      if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
      const at::Tensor& gradient = parameter.grad();
      const bool fits = bucket.empty() || (bucket[0].scalar_type() == gradient.scalar_type() &&
                                           elements + gradient.numel() <= kBucketElements);
      if (!fits) send();
      bucket.push_back(gradient);
      elements += gradient.numel();
    }
  }
  send();
  synchronized_ = true;
}

void ReplicatedOptimizer::Step() {
  if (!synchronized_) Synchronize();
  optimizer_->step();
  synchronized_ = false;
}

ReplicatedOptimizer Replicator::WrapOptimizer(
    std::shared_ptr<torch::optim::Optimizer> optimizer) const {
  const at::NoGradGuard no_grad;
  for (const auto& group : optimizer->param_groups()) {
    for (at::Tensor parameter : group.params()) group_->Broadcast(parameter, 0);
  }
  return {*group_, std::move(optimizer)};
}

bool Replicator::AllHave(bool own) const {
  at::Tensor have = at::full({1}, own ? 1 : 0, at::kLong);
  group_->AllReduce(have, ReduceOp::kMin);
  return have.item<int64_t>() != 0;
}

at::Tensor Replicator::GatherOutputs(const std::vector<at::Tensor>& outputs) const {
  if (outputs.empty()) return {};
  return group_->AllGather(at::stack(outputs)).transpose(0, 1).contiguous();
}

}  // namespace dslaunch
