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

// Memory for what other ranks send to be reduced. It is kept from one operation to the next,
// because the kernel's new pages cost as much as the exchange. One thread.
class StagingMemory {
 public:
  // `bytes` or more, uninitialized.
  at::Tensor Take(size_t bytes);
  void Give(at::Tensor memory);

 private:
  std::vector<at::Tensor> spare_;
};

// One operation, whose number is the same on all ranks, and of no other operation of the group.
// Tensors are contiguous and on the CPU. Reductions are in the order of the ranks
// (trainer/comm/backend/combine.h), each element on one rank, so that all ranks have the same bits.
class LinkCollective {
 public:
  // `staging` belongs to the operations of a group, which run one after the other.
  LinkCollective(LinkEngine& engine, StagingMemory& staging, uint64_t number, Deadline deadline)
      : engine_(engine), staging_(staging), number_(number), deadline_(deadline) {}

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
  // What is to be reduced of a chunk that is under way: a part of each rank, by rank.
  struct Staged {
    at::Tensor memory;  // of the other ranks' parts
    std::vector<at::Tensor> parts;
  };

  // All ranks' parts, of `elements` elements each; `own` are this rank's.
  Staged& Stage(std::byte* own, size_t elements, at::ScalarType dtype);
  void Unstage();  // the oldest

  LinkEngine& engine_;
  StagingMemory& staging_;
  const uint64_t number_;
  const Deadline deadline_;
  std::deque<Staged> staged_;
};

}  // namespace dslaunch
