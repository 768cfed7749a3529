// Provides TF-Replicator's programming interface: one function returns the input of a replica, and
// another runs a step of a replica. The same program runs in one process, on the ranks of one
// machine or on the ranks of many machines.
//
//   dslaunch::Replicator replicator(group);
//   auto optimizer = replicator.WrapOptimizer(sgd);
//   replicator.Run<Batch>(
//       [&](const dslaunch::InputContext& input) { return MakeReader(input.replica_id(), ...); },
//       [&](const dslaunch::ReplicaContext& replica, const Batch& batch) {
//         optimizer.ZeroGrad();
//         at::Tensor loss = ...;
//         loss.backward();
//         optimizer.Step();
//         return replica.AllReduce(loss.detach(), dslaunch::ReduceOp::kAverage);
//       },
//       steps);
//
// (Buchlovsky et al., "TF-Replicator: Distributed Machine Learning for Researchers", 2019.)
//
// A replica is a rank. All replicas must make the same calls in the same order, on one thread, with
// tensors of the same shape and dtype. The functions throw the exceptions of ProcessGroup.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dslaunch/process_group.h"

namespace torch::optim {
class Optimizer;
}

namespace dslaunch {

// Describes the replica for which input_fn creates an input.
class InputContext {
 public:
  InputContext(int replica_id, int num_replicas)
      : replica_id_(replica_id), num_replicas_(num_replicas) {}
  int replica_id() const { return replica_id_; }
  int num_replicas() const { return num_replicas_; }
  // Returns global_batch_size / num_replicas(). Throws TrainError kUsage if the division has a
  // remainder.
  int64_t PerReplicaBatchSize(int64_t global_batch_size) const;

 private:
  int replica_id_;
  int num_replicas_;
};

// Describes the replica of step_fn, and exchanges tensors with the other replicas. Results are new
// tensors. AllSum, AllReduce with kSum or kAverage, AllGather and Broadcast are differentiable: the
// gradient of the sum of all replicas' losses flows back to the replica that contributed the value,
// so all replicas must make the same backward passes.
class ReplicaContext {
 public:
  explicit ReplicaContext(const ProcessGroup& group) : group_(&group) {}
  int replica_id() const { return group_->rank(); }
  int num_replicas() const { return group_->world_size(); }

  at::Tensor AllReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  at::Tensor AllSum(const at::Tensor& tensor) const { return AllReduce(tensor, ReduceOp::kSum); }
  // Gathers a tensor of shape [...] from every replica; returns [num_replicas, ...].
  at::Tensor AllGather(const at::Tensor& tensor) const;
  at::Tensor Broadcast(const at::Tensor& tensor, int source_replica = 0) const;

  // Divides a tensor [n, ...] that all replicas have: each replica calls `function` with its n /
  // num_replicas rows and returns the result. Throws TrainError kUsage unless n is a multiple of
  // num_replicas.
  using RowFunction = std::function<at::Tensor(const at::Tensor& rows)>;
  at::Tensor Map(const RowFunction& function, const at::Tensor& tensor) const;
  // Calls Map and reduces the results of all replicas.
  at::Tensor MapReduce(const RowFunction& function, const at::Tensor& tensor,
                       ReduceOp op = ReduceOp::kSum) const;
  // Calls Map and joins the results of all replicas along their first dimension.
  at::Tensor MapGather(const RowFunction& function, const at::Tensor& tensor) const;

 private:
  const ProcessGroup* group_;
};

// Wraps an optimizer so that each step uses the average of all replicas' gradients.
class ReplicatedOptimizer {
 public:
  ReplicatedOptimizer(const ProcessGroup& group, std::shared_ptr<torch::optim::Optimizer> optimizer)
      : group_(&group), optimizer_(std::move(optimizer)) {}
  void ZeroGrad();
  // Averages the gradients in .grad() over all replicas, so that operations such as clipping can
  // follow before Step. A parameter without a gradient contributes zeros.
  void Synchronize();
  // Runs the optimizer's step(). Calls Synchronize first, unless it was called since the last step.
  void Step();
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  const ProcessGroup* group_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  bool synchronized_ = false;
};

class Replicator {
 public:
  // Creates a replicator for this rank of `group`, which must outlive this object.
  explicit Replicator(const ProcessGroup& group) : group_(&group) {}
  int num_replicas() const { return group_->world_size(); }

  // Copies replica 0's values of the optimizer's parameters to all replicas. Collective.
  ReplicatedOptimizer WrapOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer) const;

  // Trains up to `steps` steps. input_fn(InputContext) is called once and returns a function that
  // returns the replica's next batch, or nullopt at the end. step_fn(ReplicaContext, batch) returns
  // a tensor, for example a loss. Ends early when a replica has no more batches; the batches that
  // other replicas have read for that step are not used. Returns the results of step_fn as a tensor
  // [completed steps, num_replicas, ...] on all replicas, or an undefined tensor if no step was
  // completed. Collective.
  template <class Batch, class InputFn, class StepFn>
  at::Tensor Run(const InputFn& input_fn, const StepFn& step_fn, int64_t steps) const {
    const ReplicaContext replica(*group_);
    std::function<std::optional<Batch>()> next =
        input_fn(InputContext(replica.replica_id(), replica.num_replicas()));
    std::vector<at::Tensor> outputs;
    for (int64_t step = 0; step < steps; ++step) {
      std::optional<Batch> batch = next();
      if (!AllHave(batch.has_value())) break;
      outputs.push_back(step_fn(replica, *batch).detach());
    }
    return GatherOutputs(outputs);
  }

 private:
  bool AllHave(bool own) const;
  at::Tensor GatherOutputs(const std::vector<at::Tensor>& outputs) const;

  const ProcessGroup* group_;
};

}  // namespace dslaunch
