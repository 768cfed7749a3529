// Exchanges of parts of flat tensors between the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/comm/collective_progress.h"

namespace dslaunch {

// An exchange that has begun. Its tensors must not be read or written before Wait returns.
class PendingExchange {
 public:
  PendingExchange() = default;  // nothing is pending
  PendingExchange(PendingExchange&&) = default;
  PendingExchange& operator=(PendingExchange&&) = default;

  bool pending() const { return !work_.empty() || sum_.defined(); }
  // Waits until the exchange is complete. Throws std::runtime_error, naming the rank that it waited
  // for, after ProcessGroup::timeout() or when that rank is lost; TrainError if the ranks have
  // diverged and the group's DesyncDetector watches (trainer/comm/desync_detector.h).
  void Wait();

 private:
  friend class ShardExchange;
  std::shared_ptr<DesyncDetector> desync_detector_;  // shared, because the group may end first
  Exchange exchange_;
  // `work_` reads and writes the tensors in `held_`. It is declared after them, so it ends first.
  std::vector<at::Tensor> held_;
  std::vector<c10::intrusive_ptr<c10d::Work>> work_;
  std::vector<size_t> peers_;  // peer of each work (rank of the job); empty if all take part
  // For a reduce-scatter: every rank's part, in the order of the ranks, and the tensor of the sum.
  std::vector<at::Tensor> parts_;
  at::Tensor sum_;
};

// Each part is sent once, from its rank to the ranks that need it, without a copy. Exchanges of the
// ranks are matched by `channel`, a small number (a unit's index), and, within one channel, by
// order; exchanges of different channels may be started and awaited in any order. One thread. All
// tensors are contiguous. The caller gives the memory, except for the other ranks' parts of a
// reduce-scatter. Autograd does not record exchanges, and version counters do not change. `what`
// names the tensors in messages.
//
// Between GPUs each exchange is a collective, so all ranks must start them in one order. Between
// hosts with several ranks reductions are collectives, and gathered parts are sent to each host
// once.
//
// (Gloo's own reduce-scatter is an all-reduce on a copy, and its all-gather takes as much memory
// again as its result.)
class ShardExchange {
 public:
  explicit ShardExchange(const ProcessGroup& group) : group_(group) {}

  int rank() const { return group_.rank(); }
  int world_size() const { return group_.world_size(); }

  struct Gathered {
    at::Tensor flat;  // [world_size * n]; only this rank's part is filled
    int channel = 0;
    std::string what = kTensors;
  };

  // AllGather and ReduceScatter throw as Wait does if a rank is already known to be lost.

  // Fills the other ranks' parts. Gathers that are awaited together should be begun by one call.
  PendingExchange AllGather(Gathered gathered) const;
  std::vector<PendingExchange> AllGather(std::vector<Gathered> gathered) const;

  // `message` is [world_size * n], with a part for each rank. `sum`, [n] of any floating dtype,
  // becomes the sum of all ranks' parts for this one; it may be this rank's part of `message`, but
  // no other. On CPUs Wait adds up in fp32 (fp64 if `message` is fp64) in the order of the ranks,
  // so the bits do not depend on the order of arrival. On a device the backend's own reduce-scatter
  // chooses dtype and order: NCCL rounds a 16-bit `message` with each addend. All ranks must begin
  // these in one order.
  PendingExchange ReduceScatter(const at::Tensor& message, const at::Tensor& sum, int channel,
                                const std::string& what = kTensors) const;
  // Bytes that ReduceScatter allocates until Wait.
  int64_t ReceivedBytes(const at::Tensor& message, const at::Tensor& sum) const;

 private:
  static constexpr char kTensors[] = "parts of tensors";

  // Sends are begun before receives. `part` returns the tensor to send to, or receive from, a peer.
  // (Gloo writes at once what the peer has already asked for, and meanwhile its thread spins if
  // anything arrives from that peer. So no receive may be posted before.)
  void Offer(const std::function<at::Tensor(int peer)>& part, int channel, const std::string& what,
             PendingExchange& exchange) const;
  void Ask(const std::function<at::Tensor(int peer)>& part, int channel,
           PendingExchange& exchange) const;
  // begin(tensors, peer) begins one message.
  template <class Begin>
  void BeginWithEach(const std::function<at::Tensor(int peer)>& part, PendingExchange& exchange,
                     Begin begin) const;

  bool IsCollective(const at::Tensor& tensor) const {
    return !tensor.is_cpu() || group_.sends_by_host();
  }
  static bool AddsInPlace(const at::Tensor& message, const at::Tensor& sum);

  // Uses a collective of the backend instead of messages. On a device messages are matched in the
  // order of a stream, so two ranks that both send before they receive would wait forever. Between
  // hosts a collective sends less than messages do.
  void BeginCollective(const std::string& what, PendingExchange& exchange) const;

  const ProcessGroup& group_;
};

}  // namespace dslaunch
