// The ranks of the job as one c10d process group.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "proto/contract/worker_env.h"

namespace dslaunch {

// Collectives must be called by every rank in the same order, from one thread. Errors are
// exceptions of c10 or std; every wait ends after kConnectTimeout or kCollectiveTimeout.
class ProcessGroup {
 public:
  static constexpr std::chrono::minutes kConnectTimeout{5};
  static constexpr std::chrono::minutes kCollectiveTimeout{10};

  // Meets the other ranks at MASTER_ADDR:MASTER_PORT, where rank 0 listens.
  explicit ProcessGroup(const WorkerEnv& env);

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d_group() const { return group_; }

  // Replaces each value by its sum over all ranks.
  void AllReduceSum(std::vector<double>& values);

  // Leaves the group: returns once no rank needs another one any more, so that nobody sees a
  // connection break.
  void Finish();

 private:
  int rank_;
  int world_size_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace dslaunch
