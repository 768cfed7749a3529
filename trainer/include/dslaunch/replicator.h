// TF-Replicator's way to write a distributed program: a function that gives a replica its input,
// and one that does a step of one replica. The program does not know how many replicas there are,
// or where: one process, the ranks of one machine, or those of many.
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
// A replica is a rank. All replicas make the same calls in one order, from one thread, with tensors
// of one shape and dtype. Errors are those of ProcessGroup.
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

// What input_fn knows of the replica that it makes an input for.
class InputContext {
 public:
  InputContext(int replica_id, int num_replicas)
      : replica_id_(replica_id), num_replicas_(num_replicas) {}
  int replica_id() const { return replica_id_; }
  int num_replicas() const { return num_replicas_; }
  // Of a batch of all replicas together. Throws TrainError kUsage where it cannot be parted
  // equally.
  int64_t PerReplicaBatchSize(int64_t global_batch_size) const;

 private:
  int replica_id_;
  int num_replicas_;
};

// What step_fn knows of its replica, and how it reaches the others. Results are new tensors.
// AllSum, AllReduce with kSum or kAverage, AllGather and Broadcast are differentiable: the gradient
// of the sum of all replicas' losses flows back to the replica that gave the value. All replicas
// then make the same backward passes.
class ReplicaContext {
 public:
  explicit ReplicaContext(const ProcessGroup& group) : group_(&group) {}
  int replica_id() const { return group_->rank(); }
  int num_replicas() const { return group_->world_size(); }

  at::Tensor AllReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  at::Tensor AllSum(const at::Tensor& tensor) const { return AllReduce(tensor, ReduceOp::kSum); }
  at::Tensor AllGather(const at::Tensor& tensor) const;  // [...] -> [num_replicas, ...]
  at::Tensor Broadcast(const at::Tensor& tensor, int source_replica = 0) const;

  // A tensor [n, ...] that all replicas have, shared out: each replica calls `function` with its
  // n / num_replicas rows. n must be a multiple of num_replicas; throws TrainError kUsage.
  using RowFunction = std::function<at::Tensor(const at::Tensor& rows)>;
  at::Tensor Map(const RowFunction& function, const at::Tensor& tensor) const;
  // The results of all replicas reduced, or joined along their first dimension.
  at::Tensor MapReduce(const RowFunction& function, const at::Tensor& tensor,
                       ReduceOp op = ReduceOp::kSum) const;
  at::Tensor MapGather(const RowFunction& function, const at::Tensor& tensor) const;

 private:
  const ProcessGroup* group_;
};

// An optimizer whose step takes the average of all replicas' gradients.
class ReplicatedOptimizer {
 public:
  ReplicatedOptimizer(const ProcessGroup& group, std::shared_ptr<torch::optim::Optimizer> optimizer)
      : group_(&group), optimizer_(std::move(optimizer)) {}
  void ZeroGrad();
  // Averages the gradients; they stay in .grad(). A parameter without one counts with zeros. For
  // what lies between it and Step, such as clipping.
  void Synchronize();
  // Synchronize, where it was not called since the last step, and the optimizer's step().
  void Step();
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  const ProcessGroup* group_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  bool synchronized_ = false;
};

class Replicator {
 public:
  // `group` must outlive this.
  explicit Replicator(const ProcessGroup& group) : group_(&group) {}
  int num_replicas() const { return group_->world_size(); }

  // All replicas get replica 0's values of the optimizer's parameters. Collective.
  ReplicatedOptimizer WrapOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer) const;

  // input_fn(InputContext) is called once and gives a function that returns the replica's next
  // batch, or nullopt at the end. step_fn(ReplicaContext, batch) returns a tensor, for example a
  // loss. Runs until `steps` are done, or a replica has no more batches: what the others have read
  // then does not count. Returns what step_fn returned, [steps done, num_replicas, ...], on all
  // replicas; an undefined tensor where no step was done. Collective.
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
