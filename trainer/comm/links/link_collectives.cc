#include "trainer/comm/links/link_collectives.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "trainer/comm/backend/combine.h"

namespace dslaunch {
namespace {

// Of a tensor, that is reduced or moved while others are on their way.
constexpr size_t kChunkBytes = size_t{4} << 20;
constexpr size_t kChunksUnderWay = 3;
// Up to here every rank gets everything, which takes one trip instead of two.
constexpr size_t kSmallBytes = size_t{16} << 10;
// Tags of collectives; those of messages are below.
constexpr uint64_t kCollective = uint64_t{1} << 63;
constexpr unsigned kPhaseBits = 6;  // a barrier has a phase for each bit of the number of ranks

std::byte* BytesOf(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};

// Part `index` of `count` of [begin, begin + elements).
Range PartOf(size_t begin, size_t elements, size_t index, size_t count) {
  return {begin + elements * index / count, begin + elements * (index + 1) / count};
}

// A flat tensor over bytes that stay.
at::Tensor View(std::byte* data, size_t elements, at::ScalarType dtype) {
  return at::from_blob(data, {static_cast<int64_t>(elements)}, at::TensorOptions().dtype(dtype));
}

}  // namespace

at::Tensor StagingMemory::Take(size_t bytes) {
  const auto fits = std::ranges::find_if(
      spare_, [bytes](const at::Tensor& memory) { return memory.nbytes() >= bytes; });
  if (fits == spare_.end()) return at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  at::Tensor memory = std::move(*fits);
  spare_.erase(fits);
  return memory;
}

void StagingMemory::Give(at::Tensor memory) {
  spare_.push_back(std::move(memory));
  if (spare_.size() > kChunksUnderWay)
    spare_.erase(std::ranges::min_element(spare_, {}, &at::Tensor::nbytes));
}

// Messages of one phase that are under way together.
class LinkCollective::Transfers {
 public:
  Transfers(LinkCollective& collective, uint64_t phase)
      : collective_(&collective), tag_(kCollective | (collective.number_ << kPhaseBits) | phase) {}

  void Send(size_t to, const std::byte* data, size_t bytes) {
    collective_->engine_.Send(to, tag_, data, bytes, collective_->deadline_, Begin());
  }
  void Receive(size_t from, std::byte* data, size_t bytes) {
    collective_->engine_.Receive(from, tag_, data, bytes, collective_->deadline_, Begin());
  }
  // Until all are done. Their deadlines end it.
  void Wait() {
    const MutexLock lock(state_->mutex);
    state_->changed.Wait(state_->mutex, [this]() DSL_REQUIRES(state_->mutex) {
      return state_->under_way == 0 || state_->error;
    });
    if (state_->error) std::rethrow_exception(state_->error);
  }

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    size_t under_way DSL_GUARDED_BY(mutex) = 0;
    std::exception_ptr error DSL_GUARDED_BY(mutex);  // the first
  };

  LinkEngine::Done Begin() {
    {
      const MutexLock lock(state_->mutex);
      ++state_->under_way;
    }
    return [state = state_](const std::exception_ptr& error) {
      const MutexLock lock(state->mutex);
      --state->under_way;
      if (error && !state->error) state->error = error;
      state->changed.NotifyAll();
    };
  }

  LinkCollective* collective_;
  uint64_t tag_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

LinkCollective::Staged& LinkCollective::Stage(std::byte* own, size_t elements,
                                              at::ScalarType dtype) {
  const size_t bytes = elements * c10::elementSize(dtype);
  Staged& staged = staged_.emplace_back(staging_.Take(bytes * (engine_.ranks() - 1)));
  std::byte* next = BytesOf(staged.memory);
  for (size_t rank = 0; rank < engine_.ranks(); ++rank) {
    const bool is_own = rank == engine_.rank();
    staged.parts.push_back(View(is_own ? own : next, elements, dtype));
    if (!is_own) next += bytes;
  }
  return staged;
}

void LinkCollective::Unstage() {
  staging_.Give(std::move(staged_.front().memory));
  staged_.pop_front();
}

void LinkCollective::AllReduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) {
  const size_t ranks = engine_.ranks(), own = engine_.rank();
  const size_t item = tensor.element_size();
  const auto elements = static_cast<size_t>(tensor.numel());
  if (elements == 0) return;
  std::byte* const data = BytesOf(tensor);
  if (elements * item <= kSmallBytes) {
    const at::Tensor all = at::empty({static_cast<int64_t>(ranks), tensor.numel()}, tensor.dtype());
    const Staged& staged = staged_.emplace_back(all, all.unbind(0));
    AllGather(tensor, staged.parts);
    return Combine(staged.parts, op, View(data, elements, tensor.scalar_type()));
  }
  // Each rank reduces its part of a chunk and sends it to all.
  const size_t chunk_elements = std::max<size_t>(kChunkBytes / item, ranks);
  const size_t chunks = (elements + chunk_elements - 1) / chunk_elements;
  const auto part = [&](size_t chunk, size_t rank) {
    const size_t begin = chunk * chunk_elements;
    return PartOf(begin, std::min(chunk_elements, elements - begin), rank, ranks);
  };
  std::deque<Transfers> gathering;  // for each chunk that is under way
  const auto gather = [&](size_t chunk) {
    Transfers& transfers = gathering.emplace_back(*this, 0);
    const Range mine = part(chunk, own);
    const Staged& staged = Stage(data + mine.begin * item, mine.size(), tensor.scalar_type());
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (rank != own) transfers.Receive(rank, BytesOf(staged.parts[rank]), mine.size() * item);
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      const Range theirs = part(chunk, rank);
      if (rank != own) transfers.Send(rank, data + theirs.begin * item, theirs.size() * item);
    }
  };
  Transfers results(*this, 1);
  for (size_t chunk = 0; chunk < std::min(kChunksUnderWay, chunks); ++chunk) gather(chunk);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    gathering.front().Wait();
    const Range mine = part(chunk, own);
    if (mine.size() > 0) Combine(staged_.front().parts, op, staged_.front().parts[own]);
    gathering.pop_front();
    Unstage();
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (rank == own) continue;
      const Range theirs = part(chunk, rank);
      results.Receive(rank, data + theirs.begin * item, theirs.size() * item);
      results.Send(rank, data + mine.begin * item, mine.size() * item);
    }
    if (chunk + kChunksUnderWay < chunks) gather(chunk + kChunksUnderWay);
  }
  results.Wait();
}

void LinkCollective::ReduceScatter(const at::Tensor& parts, const at::Tensor& result,
                                   c10d::ReduceOp::RedOpType op) {
  const size_t ranks = engine_.ranks(), own = engine_.rank();
  const size_t item = result.element_size();
  const auto elements = static_cast<size_t>(result.numel());
  const size_t chunk_elements = std::max<size_t>(kChunkBytes / item / ranks, 1);
  const size_t chunks = (elements + chunk_elements - 1) / chunk_elements;
  std::deque<Transfers> gathering;  // for each chunk that is under way
  const auto range = [&](size_t chunk) {
    return Range{chunk * chunk_elements, std::min((chunk + 1) * chunk_elements, elements)};
  };
  const auto at_rank = [&](size_t rank, size_t chunk) {
    return BytesOf(parts) + (rank * elements + range(chunk).begin) * item;
  };
  const auto gather = [&](size_t chunk) {
    Transfers& transfers = gathering.emplace_back(*this, 0);
    const size_t size = range(chunk).size();
    const Staged& staged = Stage(at_rank(own, chunk), size, parts.scalar_type());
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (rank == own) continue;
      transfers.Receive(rank, BytesOf(staged.parts[rank]), size * item);
      transfers.Send(rank, at_rank(rank, chunk), size * item);
    }
  };
  for (size_t chunk = 0; chunk < std::min(kChunksUnderWay, chunks); ++chunk) gather(chunk);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    gathering.front().Wait();
    const Range mine = range(chunk);
    Combine(staged_.front().parts, op,
            View(BytesOf(result) + mine.begin * item, mine.size(), result.scalar_type()));
    gathering.pop_front();
    Unstage();
    if (chunk + kChunksUnderWay < chunks) gather(chunk + kChunksUnderWay);
  }
}

// A large tensor goes out in parts, which the ranks give to each other.
void LinkCollective::Broadcast(const at::Tensor& tensor, size_t root) {
  const size_t ranks = engine_.ranks(), own = engine_.rank();
  const size_t bytes = tensor.nbytes();
  if (bytes == 0) return;
  std::byte* const data = BytesOf(tensor);
  Transfers scatter(*this, 0);
  const bool small = bytes <= kSmallBytes;
  const auto part = [&](size_t rank) {
    return small ? Range{0, bytes} : PartOf(0, bytes, rank, ranks);
  };
  if (own == root) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (rank != own) scatter.Send(rank, data + part(rank).begin, part(rank).size());
    }
  } else {
    scatter.Receive(root, data + part(own).begin, part(own).size());
  }
  Transfers rest(*this, 1);
  for (size_t rank = 0; !small && rank < ranks; ++rank) {
    if (rank != own && own != root) rest.Receive(rank, data + part(rank).begin, part(rank).size());
  }
  scatter.Wait();
  for (size_t rank = 0; !small && rank < ranks; ++rank) {
    if (rank != own && rank != root) rest.Send(rank, data + part(own).begin, part(own).size());
  }
  rest.Wait();
}

void LinkCollective::AllGather(const at::Tensor& input, const std::vector<at::Tensor>& outputs) {
  const size_t ranks = engine_.ranks(), own = engine_.rank();
  const size_t bytes = input.nbytes();
  if (bytes == 0) return;
  Transfers transfers(*this, 0);
  for (size_t i = 1; i < ranks; ++i)
    transfers.Receive((own + i) % ranks, BytesOf(outputs[(own + i) % ranks]), bytes);
  for (size_t i = 1; i < ranks; ++i) transfers.Send((own + i) % ranks, BytesOf(input), bytes);
  if (BytesOf(outputs[own]) != BytesOf(input))
    std::memcpy(BytesOf(outputs[own]), BytesOf(input), bytes);
  transfers.Wait();
}

void LinkCollective::AllToAll(const at::Tensor& input, const at::Tensor& output) {
  const size_t ranks = engine_.ranks(), own = engine_.rank();
  const size_t bytes = input.nbytes() / ranks;
  if (bytes == 0) return;
  Transfers transfers(*this, 0);
  for (size_t i = 1; i < ranks; ++i) {
    const size_t rank = (own + i) % ranks;
    transfers.Receive(rank, BytesOf(output) + rank * bytes, bytes);
    transfers.Send(rank, BytesOf(input) + rank * bytes, bytes);
  }
  std::memcpy(BytesOf(output) + own * bytes, BytesOf(input) + own * bytes, bytes);
  transfers.Wait();
}

// After round k each rank knows of 2^(k+1) ranks that they have come.
void LinkCollective::Barrier() {
  const size_t ranks = engine_.ranks(), own = engine_.rank();
  uint64_t round = 0;
  for (size_t distance = 1; distance < ranks; distance *= 2, ++round) {
    Transfers transfers(*this, round);
    transfers.Receive((own + ranks - distance) % ranks, nullptr, 0);
    transfers.Send((own + distance) % ranks, nullptr, 0);
    transfers.Wait();
  }
}

}  // namespace dslaunch
