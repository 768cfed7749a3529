// Parts of flat tensors on their way between the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/comm/collective_progress.h"

namespace dslaunch {

// An exchange that is under way. The tensors in it must not be touched before Wait.
class PendingExchange {
 public:
  PendingExchange() = default;  // of nothing
  PendingExchange(PendingExchange&&) = default;
  PendingExchange& operator=(PendingExchange&&) = default;

  bool pending() const { return !work_.empty() || sum_.defined(); }
  // Until all of it is there. Throws std::runtime_error, naming the rank that it waited for, after
  // ProcessGroup::timeout() or when that rank is lost; TrainError where the ranks have gone
  // different ways and somebody watches (trainer/comm/desync_detector.h).
  void Wait();

 private:
  friend class ShardExchange;
  std::shared_ptr<DesyncDetector> desync_detector_;  // the group may be finished before
  Exchange exchange_;
  // In this order: `work_` reads and writes what is held, and ends first.
  std::vector<at::Tensor> held_;
  std::vector<c10::intrusive_ptr<c10d::Work>> work_;
  std::vector<size_t> peers_;  // of each; by their ranks in the job. Empty: work with all
  // Of a reduce-scatter: every rank's part, in the order of the ranks, and where the sum goes.
  std::vector<at::Tensor> parts_;
  at::Tensor sum_;
};

// Every part travels once, straight from its rank to the ranks that need it, without a copy. What
// ranks exchange finds each other by `channel`, a small number (a unit's index), and, within one
// channel, by order; exchanges of different channels may be started, and awaited, in any order. One
// thread. All tensors are contiguous. Memory comes from the caller, but for the other ranks' parts
// of a reduce-scatter. Autograd sees nothing of it, and version counters stay as they are. `what`
// travels is for messages.
//
// Between GPUs each exchange is a collective, so all ranks must start them in one order. Between
// hosts that have several ranks reductions are, and what is gathered goes to each host once.
//
// (Gloo's own reduce-scatter is an all-reduce on a copy, and its all-gather takes as much memory
// again as its result.)
class ShardExchange {
 public:
  explicit ShardExchange(const ProcessGroup& group) : group_(group) {}

  int rank() const { return group_.rank(); }
  int world_size() const { return group_.world_size(); }

  struct Gathered {
    at::Tensor flat;  // [world_size * n], of which this rank's part is filled
    int channel = 0;
    std::string what = kTensors;
  };

  // Both throw as Wait does where a rank is known to be lost already.

  // Fills the other ranks' parts. Several that are awaited together are better begun together.
  PendingExchange AllGather(Gathered gathered) const;
  std::vector<PendingExchange> AllGather(std::vector<Gathered> gathered) const;

  // `message` is [world_size * n]: from this rank, a part for each. `sum` is [n], of any floating
  // dtype, and may be this rank's part of `message`, but no other: becomes the sum of what all
  // ranks have for this one. On CPUs it is added up in fp32 (fp64 where `message` is that) in the
  // order of the ranks, so that it is the same bits whatever came first; Wait adds up. On a device
  // it is the backend's own reduce-scatter, in the dtype and the order that this has: NCCL rounds a
  // 16-bit `message` with each addend. All ranks begin these in one order.
  PendingExchange ReduceScatter(const at::Tensor& message, const at::Tensor& sum, int channel,
                                const std::string& what = kTensors) const;
  // What ReduceScatter allocates until Wait.
  int64_t ReceivedBytes(const at::Tensor& message, const at::Tensor& sum) const;

 private:
  static constexpr char kTensors[] = "parts of tensors";

  // An exchange is first offered, then asked for. `part` is what goes to, or comes from, another
  // rank. (What a rank is asked for already it writes at once, and for as long as it does Gloo's
  // thread spins if anything comes from that peer. So nothing may come yet.)
  void Offer(const std::function<at::Tensor(int peer)>& part, int channel, const std::string& what,
             PendingExchange& exchange) const;
  void Ask(const std::function<at::Tensor(int peer)>& part, int channel,
           PendingExchange& exchange) const;
  // begin(tensors, peer) is one message.
  template <class Begin>
  void BeginWithEach(const std::function<at::Tensor(int peer)>& part, PendingExchange& exchange,
                     Begin begin) const;

  bool IsCollective(const at::Tensor& tensor) const {
    return !tensor.is_cpu() || group_.sends_by_host();
  }
  static bool AddsInPlace(const at::Tensor& message, const at::Tensor& sum);

  // On a device a collective of the backend takes the place of messages: these are matched in the
  // order of a stream there, so two ranks that each send before they receive would wait for ever.
  // Between hosts, because it sends less.
  void BeginCollective(const std::string& what, PendingExchange& exchange) const;

  const ProcessGroup& group_;
};

}  // namespace dslaunch
