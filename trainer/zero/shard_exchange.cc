#include "trainer/zero/shard_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "trainer/comm/lockstep.h"

namespace dslaunch {
namespace {

// Elements that are added up at a time: they stay in the cache, and what has another dtype is cast
// in a small piece of memory.
constexpr int64_t kSumElements = 1 << 16;

// sum = parts[0] + parts[1] + ..., from the left.
void AddUp(const std::vector<at::Tensor>& parts, const at::Tensor& sum) {
  const at::ScalarType dtype = at::promote_types(parts[0].scalar_type(), at::kFloat);
  for (int64_t start = 0; start < sum.numel(); start += kSumElements) {
    const int64_t end = std::min(start + kSumElements, sum.numel());
    at::Tensor target = sum.slice(0, start, end);
    at::Tensor total = target.scalar_type() == dtype ? target : at::empty_like(target, dtype);
    total.copy_(parts[0].slice(0, start, end));
    for (size_t i = 1; i < parts.size(); ++i) total.add_(parts[i].slice(0, start, end));
    if (!total.is_same(target)) target.copy_(total);
  }
}

}  // namespace

void PendingExchange::Wait() {
  for (size_t i = 0; i < work_.size(); ++i) {
    try {
      lockstep_->Wait(exchange_, work_[i]);
    } catch (const TrainError&) {
      throw;
    } catch (const std::exception& error) {
      throw std::runtime_error("waiting for rank " + std::to_string(peers_[i]) + ": " +
                               error.what());
    }
  }
  if (sum_.defined()) {
    const at::NoGradGuard no_grad;
    AddUp(parts_, sum_);
  }
  *this = {};
}

PendingExchange ShardExchange::AllGather(const at::Tensor& flat, int channel,
                                         const std::string& what) const {
  const at::NoGradGuard no_grad;
  PendingExchange exchange;
  exchange.exchange_.what = what;
  const std::vector<at::Tensor> parts = flat.chunk(world_size());
  Swap([&](int) { return parts[static_cast<size_t>(rank())]; },
       [&](int peer) { return parts[static_cast<size_t>(peer)]; }, channel, exchange);
  return exchange;
}

PendingExchange ShardExchange::ReduceScatter(const at::Tensor& message, const at::Tensor& sum,
                                             int channel, const std::string& what) const {
  const at::NoGradGuard no_grad;
  PendingExchange exchange;
  exchange.exchange_.what = what;
  const std::vector<at::Tensor> sent = message.chunk(world_size());
  const at::Tensor received = at::empty({world_size() - 1, sum.numel()}, message.options());
  for (int64_t i = 0; i < world_size(); ++i) {
    exchange.parts_.push_back(i == rank() ? sent[static_cast<size_t>(i)]
                                          : received[i < rank() ? i : i - 1]);
  }
  exchange.sum_ = sum;
  Swap([&](int peer) { return sent[static_cast<size_t>(peer)]; },
       [&](int peer) { return exchange.parts_[static_cast<size_t>(peer)]; }, channel, exchange);
  return exchange;
}

void ShardExchange::Swap(const std::function<at::Tensor(int peer)>& sent,
                         const std::function<at::Tensor(int peer)>& received, int channel,
                         PendingExchange& exchange) const {
  c10d::ProcessGroup& group = *group_.c10d_group();
  exchange.lockstep_ = &group_.lockstep();
  exchange.exchange_ = group_.lockstep().Begin(exchange.exchange_.what);
  const int tag = channel + 1;  // ProcessGroup's own messages have 0
  // Each rank begins with another peer. What is awaited is asked for first: then whoever sends it
  // finds its place ready.
  for (int step = 1; step < world_size(); ++step) {
    const int peer = (rank() + step) % world_size();
    std::vector<at::Tensor> to = {received(peer)};
    exchange.work_.push_back(group.recv(to, peer, tag));
    exchange.peers_.push_back(group_.job_ranks()[static_cast<size_t>(peer)]);
    exchange.held_.push_back(to[0]);
  }
  for (int step = 1; step < world_size(); ++step) {
    const int peer = (rank() + step) % world_size();
    std::vector<at::Tensor> from = {sent(peer)};
    exchange.work_.push_back(group.send(from, peer, tag));
    exchange.peers_.push_back(group_.job_ranks()[static_cast<size_t>(peer)]);
    exchange.held_.push_back(from[0]);
  }
}

}  // namespace dslaunch
