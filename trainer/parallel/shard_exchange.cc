#include "trainer/parallel/shard_exchange.h"

#include <ATen/ATen.h>

#include <string>

#include "trainer/comm/backend/combine.h"
#include "trainer/comm/desync_detector.h"
#include "trainer/comm/with_context.h"

namespace dslaunch {
void PendingExchange::Wait() {
  for (size_t i = 0; i < work_.size(); ++i) {
    WithContext(peers_.empty() ? "waiting for the other ranks"
                               : "waiting for rank " + std::to_string(peers_[i]),
                [&] { desync_detector_->Wait(exchange_, work_[i]); });
  }
  if (sum_.defined()) {
    const at::NoGradGuard no_grad;
    AddUp(parts_, sum_);
  }
  *this = {};
}

PendingExchange ShardExchange::AllGather(Gathered gathered) const {
  return std::move(AllGather(std::vector<Gathered>{std::move(gathered)})[0]);
}

std::vector<PendingExchange> ShardExchange::AllGather(std::vector<Gathered> gathered) const {
  const at::NoGradGuard no_grad;
  std::vector<PendingExchange> exchanges(gathered.size());
  const auto part = [&](size_t i, int rank) {
    const int64_t n = gathered[i].flat.numel() / world_size();
    return gathered[i].flat.narrow(0, n * rank, n);
  };
  if (!gathered.empty() && IsCollective(gathered[0].flat)) {
    for (size_t i = 0; world_size() > 1 && i < gathered.size(); ++i) {
      at::Tensor own = part(i, rank());
      at::Tensor& flat = gathered[i].flat;
      BeginCollective(gathered[i].what, exchanges[i]);
      exchanges[i].work_.push_back(flat.is_cpu() ? group_.GatherByHost(flat, gathered[i].channel)
                                                 : group_.c10d_group()->_allgather_base(flat, own));
      exchanges[i].held_ = {flat};
    }
    return exchanges;
  }
  for (size_t i = 0; i < gathered.size(); ++i) {
    Offer([&](int) { return part(i, rank()); }, gathered[i].channel, gathered[i].what,
          exchanges[i]);
  }
  for (size_t i = 0; i < gathered.size(); ++i) {
    Ask([&](int peer) { return part(i, peer); }, gathered[i].channel, exchanges[i]);
  }
  return exchanges;
}

PendingExchange ShardExchange::ReduceScatter(const at::Tensor& message, const at::Tensor& sum,
                                             int channel, const std::string& what) const {
  const at::NoGradGuard no_grad;
  PendingExchange exchange;
  if (IsCollective(message)) {
    at::Tensor from = message, to = message;
    if (world_size() > 1) {
      to = AddsInPlace(message, sum) ? sum : at::empty_like(sum, message.options());
      BeginCollective(what, exchange);
      exchange.work_.push_back(group_.c10d_group()->_reduce_scatter_base(to, from));
      exchange.held_ = {from, to};
    }
    if (to.is_same(sum)) return exchange;
    exchange.parts_ = {to};
    exchange.sum_ = sum;
    return exchange;
  }
  const std::vector<at::Tensor> sent = message.chunk(world_size());
  const at::Tensor received = at::empty({world_size() - 1, sum.numel()}, message.options());
  for (int64_t i = 0; i < world_size(); ++i) {
    exchange.parts_.push_back(i == rank() ? sent[static_cast<size_t>(i)]
                                          : received[i < rank() ? i : i - 1]);
  }
  exchange.sum_ = sum;
  Offer([&](int peer) { return sent[static_cast<size_t>(peer)]; }, channel, what, exchange);
  Ask([&](int peer) { return exchange.parts_[static_cast<size_t>(peer)]; }, channel, exchange);
  return exchange;
}

int64_t ShardExchange::ReceivedBytes(const at::Tensor& message, const at::Tensor& sum) const {
  const auto bytes = static_cast<int64_t>(message.nbytes());
  if (!IsCollective(message)) return bytes / world_size() * (world_size() - 1);
  return world_size() == 1 || AddsInPlace(message, sum) ? 0 : bytes / world_size();
}

// Returns whether a collective can reduce directly into `sum`. On CPUs the dtype of the sum may
// differ from the message's.
bool ShardExchange::AddsInPlace(const at::Tensor& message, const at::Tensor& sum) {
  if (message.is_cpu()) return sum.is_cpu();
  return sum.scalar_type() == message.scalar_type() && sum.device() == message.device();
}

// Begins an exchange with each other rank. Each rank begins with a different peer, so that the
// ranks do not all send to the same rank. Callers use tags from 1, because messages of ProcessGroup
// have tag 0.
template <class Begin>
void ShardExchange::BeginWithEach(const std::function<at::Tensor(int peer)>& part,
                                  PendingExchange& exchange, Begin begin) const {
  for (int step = 1; step < world_size(); ++step) {
    const int peer = (rank() + step) % world_size();
    const size_t job_rank = group_.job_ranks()[static_cast<size_t>(peer)];
    std::vector<at::Tensor> tensors = {part(peer)};
    exchange.work_.push_back(WithContext("waiting for rank " + std::to_string(job_rank),
                                         [&] { return begin(tensors, peer); }));
    exchange.peers_.push_back(job_rank);
    exchange.held_.push_back(tensors[0]);
  }
}

void ShardExchange::BeginCollective(const std::string& what, PendingExchange& exchange) const {
  exchange.desync_detector_ = group_.desync_detector().shared_from_this();
  exchange.exchange_ = group_.desync_detector().Begin(what);
}

void ShardExchange::Offer(const std::function<at::Tensor(int peer)>& part, int channel,
                          const std::string& what, PendingExchange& exchange) const {
  BeginCollective(what, exchange);
  BeginWithEach(part, exchange, [&](std::vector<at::Tensor>& from, int peer) {
    return group_.c10d_group()->send(from, peer, channel + 1);
  });
}

void ShardExchange::Ask(const std::function<at::Tensor(int peer)>& part, int channel,
                        PendingExchange& exchange) const {
  BeginWithEach(part, exchange, [&](std::vector<at::Tensor>& to, int peer) {
    return group_.c10d_group()->recv(to, peer, channel + 1);
  });
}

}  // namespace dslaunch
