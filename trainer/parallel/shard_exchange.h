// Exchanges parts of flat tensors between the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/comm/collective_progress.h"

namespace dslaunch {

// An asynchronous exchange. Its tensors must not be read or written before Wait returns.
class PendingExchange {
 public:
  PendingExchange() = default;  // creates an exchange that is already complete
  PendingExchange(PendingExchange&&) = default;
  PendingExchange& operator=(PendingExchange&&) = default;

  bool pending() const { return !work_.empty() || sum_.defined(); }
  // Waits until the exchange is complete. Throws std::runtime_error, naming the rank that it waited
  // for, after ProcessGroup::timeout() or if that rank is lost. Throws TrainError if the group's
  // DesyncDetector is on and finds that the ranks have diverged (trainer/comm/desync_detector.h).
  void Wait();

 private:
  friend class ShardExchange;
  // Shared because the group may be destroyed first.
  std::shared_ptr<DesyncDetector> desync_detector_;
  Exchange exchange_;
  // `work_` reads and writes the tensors in `held_`. `work_` is declared after `held_`, so it is
  // destroyed first.
  std::vector<at::Tensor> held_;
  std::vector<c10::intrusive_ptr<c10d::Work>> work_;
  std::vector<size_t> peers_;  // peer of each work (rank in the job); empty for a collective
  // Used by a reduce-scatter: the parts of all ranks, in the order of the ranks, and their sum.
  std::vector<at::Tensor> parts_;
  at::Tensor sum_;
};

// Gathers and reduces parts of tensors. Each part is sent without a copy from its rank to every
// rank that needs it. Exchanges of the ranks are matched by `channel`, a small number (a unit's
// index), and, within a channel, by order. Exchanges of different channels may be started and
// awaited in any order. Not thread-safe. All tensors must be contiguous. The caller provides the
// memory, except for the other ranks' parts of a reduce-scatter. Autograd does not record
// exchanges, and version counters do not change. `what` names the tensors in error messages.
//
// Between GPUs each exchange is a collective, so all ranks must start exchanges in the same order.
// Between hosts with several ranks, reductions are collectives, and gathered parts are sent only
// once to each host.
//
// (Gloo's collectives are not used because its reduce-scatter is an all-reduce on a copy, and its
// all-gather takes twice the memory of its result.)
class ShardExchange {
 public:
  explicit ShardExchange(const ProcessGroup& group) : group_(group) {}

  int rank() const { return group_.rank(); }
  int world_size() const { return group_.world_size(); }

  struct Gathered {
    // Tensor [world_size * n]; only this rank's part has values before the exchange.
    at::Tensor flat;
    int channel = 0;
    std::string what = kTensors;
  };

  // AllGather and ReduceScatter throw, like PendingExchange::Wait, if a rank was already lost.

  // Begins to fill in the other ranks' parts. Gathers that are awaited together should be begun by
  // one call.
  PendingExchange AllGather(Gathered gathered) const;
  std::vector<PendingExchange> AllGather(std::vector<Gathered> gathered) const;

  // Begins a reduce-scatter. `message` is [world_size * n], with a part for each rank. `sum`, [n]
  // of any floating-point dtype, becomes the sum of all ranks' parts for this rank; it may share
  // memory with this rank's part of `message`, but with no other part. On CPUs Wait adds up in fp32
  // (fp64 if `message` is fp64) in the order of the ranks, so the bits do not depend on the order
  // of arrival. On a device the backend chooses the dtype and the order: NCCL rounds a 16-bit sum
  // with each addend. All ranks must begin reduce-scatters in the same order.
  PendingExchange ReduceScatter(const at::Tensor& message, const at::Tensor& sum, int channel,
                                const std::string& what = kTensors) const;
  // Returns the number of bytes that ReduceScatter allocates until Wait.
  int64_t ReceivedBytes(const at::Tensor& message, const at::Tensor& sum) const;

 private:
  static constexpr char kTensors[] = "parts of tensors";

  // Begins the sends of an exchange. `part` returns the tensor to send to a peer. Call Offer before
  // Ask: Gloo immediately writes data that a peer has already requested, and its thread would spin
  // meanwhile if a message from that peer arrived for a posted receive.
  void Offer(const std::function<at::Tensor(int peer)>& part, int channel, const std::string& what,
             PendingExchange& exchange) const;
  // Begins the receives of an exchange. `part` returns the tensor to receive from a peer.
  void Ask(const std::function<at::Tensor(int peer)>& part, int channel,
           PendingExchange& exchange) const;
  // Calls begin(tensors, peer) for each other rank; `begin` starts one message.
  template <class Begin>
  void BeginWithEach(const std::function<at::Tensor(int peer)>& part, PendingExchange& exchange,
                     Begin begin) const;

  bool IsCollective(const at::Tensor& tensor) const {
    return !tensor.is_cpu() || group_.sends_by_host();
  }
  static bool AddsInPlace(const at::Tensor& message, const at::Tensor& sum);

  // Begins an exchange by a collective of the backend instead of messages. On a device, messages
  // are matched in the order of a stream, so two ranks that both send before they receive would
  // deadlock. Between hosts a collective sends less data than messages.
  void BeginCollective(const std::string& what, PendingExchange& exchange) const;

  const ProcessGroup& group_;
};

}  // namespace dslaunch
