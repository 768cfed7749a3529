// Collective operations over a LinkEngine. Each blocks until it is done on this rank, and throws
// when a rank is lost or late. What is under way then touches the tensors and this object's own
// memory until LinkEngine::FailAll has returned; only then may they be let go of.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "base/deadline.h"
#include "trainer/comm/links/link_engine.h"

namespace dslaunch {

// One operation, whose number is the same on all ranks, and of no other operation of the group.
// Tensors are contiguous and on the CPU. Reductions are in the order of the ranks
// (trainer/comm/backend/combine.h), each element on one rank, so that all ranks have the same bits.
class LinkCollective {
 public:
  LinkCollective(LinkEngine& engine, uint64_t number, Deadline deadline)
      : engine_(engine), number_(number), deadline_(deadline) {}

  void AllReduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op);
  // `parts` is [ranks * n], `result` [n]; they may not overlap.
  void ReduceScatter(const at::Tensor& parts, const at::Tensor& result,
                     c10d::ReduceOp::RedOpType op);
  void Broadcast(const at::Tensor& tensor, size_t root);
  // Each of `outputs`, by rank, is as large as `input`.
  void AllGather(const at::Tensor& input, const std::vector<at::Tensor>& outputs);
  // Part r of `input`, of as many equal parts as there are ranks, goes to rank r.
  void AllToAll(const at::Tensor& input, const at::Tensor& output);
  void Barrier();

 private:
  class Transfers;

  LinkEngine& engine_;
  const uint64_t number_;
  const Deadline deadline_;
  // What other ranks send to be reduced: for each chunk that is under way, by rank.
  std::deque<std::vector<at::Tensor>> staged_;
};

}  // namespace dslaunch
