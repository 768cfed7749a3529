// The ranks of the job as one c10d process group.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace dslaunch {

struct WorkerEnv;

enum class ReduceOp { kSum, kAverage, kMin, kMax, kProduct };

// Collectives must be called by every rank in the same order, from one thread, with tensors of the
// same shape and dtype. They return when the result is there. Errors are exceptions of c10 or std;
// every wait ends after kConnectTimeout or kCollectiveTimeout.
class ProcessGroup {
 public:
  static constexpr std::chrono::minutes kConnectTimeout{5};
  static constexpr std::chrono::minutes kCollectiveTimeout{10};

  // Meets the other ranks at MASTER_ADDR:MASTER_PORT, where rank 0 listens.
  explicit ProcessGroup(const WorkerEnv& env);

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d_group() const { return group_; }
  // Shared by all ranks: small values by key.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  void AllReduce(at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;  // in place
  void Broadcast(at::Tensor& tensor, int root) const;                      // in place
  // [...] of each rank -> [world_size, ...] on all.
  at::Tensor AllGather(const at::Tensor& tensor) const;
  // [world_size, ...] of each rank -> [...]: the reduction of every rank's part for this one.
  at::Tensor ReduceScatter(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  void Send(const at::Tensor& tensor, int to) const;
  void Recv(at::Tensor& tensor, int from) const;
  void Barrier() const;

  // Replaces each value by its sum over all ranks.
  void AllReduceSum(std::vector<double>& values) const;

  // Leaves the group: returns once no rank needs another one any more, so that nobody sees a
  // connection break.
  void Finish();

 private:
  int rank_;
  int world_size_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

// This process's place as its launcher says it (RANK, WORLD_SIZE, MASTER_ADDR ...); without one, a
// world of one. Throws TrainError.
ProcessGroup InitProcessGroup();

}  // namespace dslaunch
