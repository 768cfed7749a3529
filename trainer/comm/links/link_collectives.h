// Collective operations over a LinkEngine. Each blocks until it is done on this rank, and throws
// when a rank is lost or late. Pending messages then access the tensors and this object's own
// memory until LinkEngine::FailAll has returned; keep both until then.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "base/deadline.h"
#include "trainer/comm/links/host_groups.h"
#include "trainer/comm/links/link_engine.h"
#include "trainer/comm/links/transfer_steps.h"

namespace dslaunch {

// Memory for the parts that other ranks send to this one for reduction. It is reused by later
// operations, because getting new pages from the kernel takes as long as the exchange. One thread.
class StagingMemory {
 public:
  // Returns `bytes` or more, uninitialized.
  at::Tensor Acquire(size_t bytes);
  void Release(at::Tensor memory);

 private:
  std::vector<at::Tensor> spare_;
  size_t spare_bytes_ = 0;
};

// One operation. Its number is the same on all ranks, and unique in the group. Tensors are
// contiguous and on the CPU. Reductions are in the order of the ranks
// (trainer/comm/backend/combine.h), each element on one rank of each host, so that all ranks have
// the same bits, and the same as on one host: a host adds its ranks' parts to the sum of the hosts
// before it. Only the sum is sent between hosts, and gathered parts are sent to each host once.
class LinkCollective {
 public:
  // `staging` is shared by the operations of a group, which run one after the other.
  LinkCollective(LinkEngine& engine, const HostGroups& hosts, StagingMemory& staging,
                 uint64_t number, Deadline deadline);

  void AllReduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op);
  // `parts` is [ranks * n]; `result`, [n], may have any floating dtype if `parts` has one, and may
  // be this rank's part, but no other.
  void ReduceScatter(const at::Tensor& parts, const at::Tensor& result,
                     c10d::ReduceOp::RedOpType op);
  void Broadcast(const at::Tensor& tensor, size_t root);
  // Each of `outputs`, by rank, is as large as `input`.
  void AllGather(const at::Tensor& input, const std::vector<at::Tensor>& outputs);
  // Sends part r of `input`, which has an equal part for each rank, to rank r.
  void AllToAll(const at::Tensor& input, const at::Tensor& output);
  void Barrier();

 private:
  // The content of a message. Messages of one kind and item between two ranks are matched by order.
  enum class Kind : uint64_t { kPart, kPartial, kResult, kForwarded, kRound };
  // The part of a tensor that this rank reduces for its host.
  struct Reduction {
    std::byte* own;  // this rank's part
    size_t elements;
    at::ScalarType dtype;
    at::ScalarType result_dtype;
    c10d::ReduceOp::RedOpType op;
    uint64_t item;      // item number of its messages
    size_t column;      // see HostGroups
    std::byte* result;  // destination of the result; null: memory of staging_
  };

  uint64_t TagOf(Kind kind, uint64_t item) const;
  LinkTransfer Send(size_t to, Kind kind, uint64_t item, const std::byte* data, size_t bytes) const;
  LinkTransfer Receive(size_t from, Kind kind, uint64_t item, std::byte* data, size_t bytes) const;
  size_t ChunkBytes() const;
  size_t ChunksUnderWay() const;
  // Calls begin(chunk, have) for each chunk in turn, with a few chunks pending at a time, and runs
  // all steps. A chunk is done once `have` was called `results` times.
  using BeginChunk = std::function<void(size_t chunk, const std::function<void()>& have)>;
  void RunChunks(size_t chunks, size_t results, const BeginChunk& begin);
  bool IsOwner(size_t column) const { return hosts_.Owner(host_, column) == own_; }

  // Waits for the sum of the hosts before this one, adds the parts of this host's ranks, and sends
  // the sum to the next host. Then calls `done`: on the last host with the result, and with memory
  // to release to staging_ once the result is used; on the others with null.
  using Reduced = std::function<void(std::byte* result, const at::Tensor& memory)>;
  void Reduce(const Reduction& what, const Reduced& done);
  // Sends data of rank `from` to all ranks, to each other host once. Skips rank `complete`, which
  // already has it.
  void Spread(size_t from, std::byte* data, size_t bytes, std::optional<size_t> complete);

  LinkEngine& engine_;
  const HostGroups& hosts_;
  StagingMemory& staging_;
  const uint64_t number_;
  TransferSteps steps_;
  std::vector<at::Tensor> gathered_;  // the ranks' tensors of a small all-reduce
  const size_t own_, ranks_;
  const size_t host_;  // this rank's part of HostGroups
};

}  // namespace dslaunch
