// Implements collective operations over a LinkEngine. Each operation blocks until it is done on
// this rank, and throws if a rank is lost or late. After an exception, pending messages may access
// the tensors and the operation's memory until LinkEngine::FailAll has returned. Keep both until
// then.
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

// Memory for the parts that other ranks send to this rank for reduction. Getting new pages from the
// kernel takes as long as the exchange, so later operations reuse the memory. Not thread-safe.
class StagingMemory {
 public:
  // Returns uninitialized memory of at least `bytes` bytes.
  at::Tensor Acquire(size_t bytes);
  // Takes back memory that Acquire returned, for later operations.
  void Release(at::Tensor memory);

 private:
  std::vector<at::Tensor> spare_;
  size_t spare_bytes_ = 0;
};

// Runs one operation. Its number is the same on all ranks and unique in the group. Tensors are
// contiguous and on the CPU. Reductions are in the order of the ranks
// (trainer/comm/backend/combine.h): a host adds its ranks' parts to the sum of the hosts before it,
// and each element is reduced on one rank of each host. All ranks therefore get the same bits,
// equal to those on one host. Only the sum is sent between hosts, and gathered parts are sent once
// to each host.
class LinkCollective {
 public:
  // Creates an operation. All operations of a group share `staging` and run one after the other.
  LinkCollective(LinkEngine& engine, const HostGroups& hosts, StagingMemory& staging,
                 uint64_t number, Deadline deadline);

  void AllReduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op);
  // Reduces `parts`, [ranks * n], to this rank's `result`, [n]. If `parts` is floating-point,
  // `result` may have any floating-point dtype. `result` may share memory with this rank's part,
  // but with no other part.
  void ReduceScatter(const at::Tensor& parts, const at::Tensor& result,
                     c10d::ReduceOp::RedOpType op);
  void Broadcast(const at::Tensor& tensor, size_t root);
  // Gathers the ranks' tensors `input` into `outputs`, which has a tensor of the size of `input`
  // for each rank.
  void AllGather(const at::Tensor& input, const std::vector<at::Tensor>& outputs);
  // Sends part r of `input`, which has an equal part for each rank, to rank r.
  void AllToAll(const at::Tensor& input, const at::Tensor& output);
  void Barrier();

 private:
  // The content of a message. Messages of one kind and item between two ranks are matched by order.
  enum class Kind : uint64_t { kPart, kPartial, kResult, kForwarded, kRound };
  // A part of a tensor that this rank reduces for its host.
  struct Reduction {
    std::byte* own;  // this rank's elements of the part
    size_t elements;
    at::ScalarType dtype;
    at::ScalarType result_dtype;
    c10d::ReduceOp::RedOpType op;
    uint64_t item;      // number of the part in the tags of its messages
    size_t column;      // column of the part (see HostGroups)
    std::byte* result;  // destination of the result; null to use memory of staging_
  };

  uint64_t TagOf(Kind kind, uint64_t item) const;
  LinkTransfer Send(size_t to, Kind kind, uint64_t item, const std::byte* data, size_t bytes) const;
  LinkTransfer Receive(size_t from, Kind kind, uint64_t item, std::byte* data, size_t bytes) const;
  size_t ChunkBytes() const;
  size_t ChunksUnderWay() const;
  // Calls begin(chunk, have) for each chunk in order, with a few chunks pending at a time, and runs
  // all steps. A chunk is done once `have` was called `results` times for it.
  using BeginChunk = std::function<void(size_t chunk, const std::function<void()>& have)>;
  void RunChunks(size_t chunks, size_t results, const BeginChunk& begin);
  bool IsOwner(size_t column) const { return hosts_.Owner(host_, column) == own_; }

  // Waits for the sum of the hosts before this one, adds the parts of this host's ranks, and sends
  // the sum to the next host. Then calls `done`. On the last host `done` gets the result, and
  // memory to release to staging_ after the result was used; on the other hosts it gets null.
  using Reduced = std::function<void(std::byte* result, const at::Tensor& memory)>;
  void Reduce(const Reduction& what, const Reduced& done);
  // Sends data of rank `from` to all ranks, and only once to each other host. Skips rank
  // `complete`, which already has the data.
  void Spread(size_t from, std::byte* data, size_t bytes, std::optional<size_t> complete);

  LinkEngine& engine_;
  const HostGroups& hosts_;
  StagingMemory& staging_;
  const uint64_t number_;
  TransferSteps steps_;
  std::vector<at::Tensor> gathered_;  // tensors of all ranks in a small all-reduce
  const size_t own_, ranks_;
  const size_t host_;  // index of this rank's part in HostGroups
};

}  // namespace dslaunch
