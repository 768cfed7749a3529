#include "trainer/comm/links/link_collectives.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "trainer/comm/backend/combine.h"

namespace dslaunch {
namespace {

// Size in bytes of a chunk of a tensor, which is reduced or copied while other chunks are sent. A
// chunk passes through all hosts, so chunks are smaller with more hosts.
constexpr size_t kChunkBytes = size_t{4} << 20;
constexpr size_t kLeastChunkBytes = size_t{128} << 10;
constexpr size_t kChunksUnderWay = 3;
// Maximum number of bytes of memory that is kept for later operations.
constexpr size_t kSpareBytes = size_t{16} << 20;
// Maximum size of a small tensor in bytes. Every rank sends a small tensor whole to every other
// rank, because this takes only one trip.
constexpr size_t kSmallBytes = size_t{16} << 10;
// Marks the tags of collectives; the tags of other messages are smaller.
constexpr uint64_t kCollective = uint64_t{1} << 63;
constexpr unsigned kKindBits = 3;
constexpr unsigned kItemBits = 21;

std::byte* BytesOf(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

// Returns a flat tensor over memory that the caller owns.
at::Tensor View(std::byte* data, size_t elements, at::ScalarType dtype) {
  return at::from_blob(data, {static_cast<int64_t>(elements)}, at::TensorOptions().dtype(dtype));
}

struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};

// Returns part `index` of `count` equal parts of [begin, begin + elements).
Range PartOf(size_t begin, size_t elements, size_t index, size_t count) {
  return {begin + elements * index / count, begin + elements * (index + 1) / count};
}

size_t ChunksOf(size_t elements, size_t chunk_elements) {
  return (elements + chunk_elements - 1) / chunk_elements;
}

}  // namespace

at::Tensor StagingMemory::Acquire(size_t bytes) {
  const auto fits = std::ranges::find_if(
      spare_, [bytes](const at::Tensor& memory) { return memory.nbytes() >= bytes; });
  if (fits == spare_.end()) return at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  at::Tensor memory = std::move(*fits);
  spare_.erase(fits);
  spare_bytes_ -= memory.nbytes();
  return memory;
}

void StagingMemory::Release(at::Tensor memory) {
  spare_bytes_ += memory.nbytes();
  spare_.push_back(std::move(memory));
  while (spare_bytes_ > kSpareBytes) {
    const auto smallest = std::ranges::min_element(spare_, {}, &at::Tensor::nbytes);
    spare_bytes_ -= smallest->nbytes();
    spare_.erase(smallest);
  }
}

LinkCollective::LinkCollective(LinkEngine& engine, const HostGroups& hosts, StagingMemory& staging,
                               uint64_t number, Deadline deadline)
    : engine_(engine),
      hosts_(hosts),
      staging_(staging),
      number_(number),
      steps_(engine, deadline),
      own_(engine.rank()),
      ranks_(engine.ranks()),
      host_(hosts.PartOf(own_)) {}

uint64_t LinkCollective::TagOf(Kind kind, uint64_t item) const {
  return kCollective | (number_ << (kKindBits + kItemBits)) |
         (static_cast<uint64_t>(kind) << kItemBits) | item;
}

LinkTransfer LinkCollective::Send(size_t to, Kind kind, uint64_t item, const std::byte* data,
                                  size_t bytes) const {
  return {LinkTransfer::Way::kSend, to, TagOf(kind, item), const_cast<std::byte*>(data), bytes};
}

LinkTransfer LinkCollective::Receive(size_t from, Kind kind, uint64_t item, std::byte* data,
                                     size_t bytes) const {
  return {LinkTransfer::Way::kReceive, from, TagOf(kind, item), data, bytes};
}

size_t LinkCollective::ChunkBytes() const {
  return std::max(kChunkBytes / hosts_.parts(), kLeastChunkBytes);
}

// Returns the number of chunks that are pending at a time. Each chunk is sent to the last host and
// back, so more hosts need more pending chunks.
size_t LinkCollective::ChunksUnderWay() const { return kChunksUnderWay + 2 * (hosts_.parts() - 1); }

void LinkCollective::RunChunks(size_t chunks, size_t results, const BeginChunk& begin) {
  std::vector<size_t> missing(chunks, results);
  size_t next = 0;
  std::function<void()> begin_next = [&] {
    if (next == chunks) return;
    const size_t chunk = next++;
    begin(chunk, [&missing, &begin_next, chunk] {
      if (--missing[chunk] == 0) begin_next();
    });
  };
  for (size_t i = 0; i < ChunksUnderWay(); ++i) begin_next();
  steps_.Run();
}

void LinkCollective::Reduce(const Reduction& what, const Reduced& done) {
  const bool is_last = host_ + 1 == hosts_.parts();
  const at::ScalarType partial_type = PartialType(what.dtype, what.op);
  const size_t bytes = what.elements * c10::elementSize(what.dtype);
  const size_t partial_bytes = what.elements * c10::elementSize(partial_type);
  const size_t sum_bytes =
      std::max(partial_bytes, what.elements * c10::elementSize(what.result_dtype));
  const HostGroups::Part& host = hosts_.part(host_);
  const at::Tensor memory = staging_.Acquire(sum_bytes + (host.count - 1) * bytes);
  // All elements must be aligned, so `partial`, which has the largest elements, comes first.
  std::byte* const partial = BytesOf(memory);
  std::vector<at::Tensor> parts;
  std::vector<LinkTransfer> messages;
  if (host_ > 0) {
    parts.push_back(View(partial, what.elements, partial_type));
    messages.push_back(Receive(hosts_.Owner(host_ - 1, what.column), Kind::kPartial, what.item,
                               partial, partial_bytes));
  }
  std::byte* next = partial + sum_bytes;
  for (size_t rank = host.first; rank < host.first + host.count; ++rank) {
    parts.push_back(View(rank == own_ ? what.own : next, what.elements, what.dtype));
    if (rank == own_) continue;
    messages.push_back(Receive(rank, Kind::kPart, what.item, next, bytes));
    next += bytes;
  }
  steps_.When(messages, [=, this] {
    std::byte* const sum = is_last && what.result != nullptr ? what.result : partial;
    if (what.elements > 0)
      Combine(parts, what.op, View(sum, what.elements, is_last ? what.result_dtype : partial_type));
    if (is_last) return done(sum, memory);
    steps_.When(
        {Send(hosts_.Owner(host_ + 1, what.column), Kind::kPartial, what.item, sum, partial_bytes)},
        [this, memory] { staging_.Release(memory); });
    done(nullptr, {});
  });
}

void LinkCollective::AllReduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) {
  const size_t item = tensor.element_size();
  const auto elements = static_cast<size_t>(tensor.numel());
  const at::ScalarType dtype = tensor.scalar_type();
  if (elements == 0) return;
  std::byte* const data = BytesOf(tensor);
  if (elements * item <= kSmallBytes) {
    gathered_ = at::empty({static_cast<int64_t>(ranks_), tensor.numel()}, tensor.dtype()).unbind(0);
    AllGather(tensor, gathered_);
    return Combine(gathered_, op, View(data, elements, dtype));
  }
  const size_t columns = hosts_.columns();
  const size_t chunk_elements = std::max(ChunkBytes() / item, columns);
  const size_t chunks = ChunksOf(elements, chunk_elements);
  RunChunks(chunks, columns, [&](size_t chunk, const std::function<void()>& have) {
    const size_t begin = chunk * chunk_elements;
    for (size_t column = 0; column < columns; ++column) {
      const Range range =
          PartOf(begin, std::min(chunk_elements, elements - begin), column, columns);
      std::byte* const place = data + range.begin * item;
      const size_t bytes = range.size() * item;
      if (!IsOwner(column)) {
        // The result arrives after this rank's part was sent, so the part's memory is reused for
        // the result.
        const size_t owner = hosts_.Owner(host_, column);
        steps_.When({Send(owner, Kind::kPart, column, place, bytes),
                     Receive(owner, Kind::kResult, column, place, bytes)},
                    have);
        continue;
      }
      // Sends the result back, to the previous host and to the other ranks of this host.
      const auto deliver = [=, this] {
        std::vector<LinkTransfer> messages;
        if (host_ > 0) {
          messages.push_back(
              Send(hosts_.Owner(host_ - 1, column), Kind::kResult, column, place, bytes));
        }
        for (const size_t rank : hosts_.NeighboursOf(own_))
          messages.push_back(Send(rank, Kind::kResult, column, place, bytes));
        steps_.When(messages);
        have();
      };
      Reduce({place, range.size(), dtype, dtype, op, column, column, place},
             [this, deliver](std::byte* result, const at::Tensor& memory) {
               if (result == nullptr) return;
               staging_.Release(memory);
               deliver();
             });
      if (host_ + 1 == hosts_.parts()) continue;
      steps_.When({Receive(hosts_.Owner(host_ + 1, column), Kind::kResult, column, place, bytes)},
                  deliver);
    }
  });
}

void LinkCollective::ReduceScatter(const at::Tensor& parts, const at::Tensor& result,
                                   c10d::ReduceOp::RedOpType op) {
  const size_t item = parts.element_size(), result_item = result.element_size();
  const auto elements = static_cast<size_t>(result.numel());
  const size_t chunk_elements = std::max<size_t>(ChunkBytes() / item / ranks_, 1);
  const size_t chunks = ChunksOf(elements, chunk_elements);
  const size_t last = hosts_.parts() - 1;
  size_t reductions = 0;  // number of reductions of this rank in each chunk
  for (size_t to = 0; to < ranks_; ++to) reductions += IsOwner(hosts_.ColumnOf(to)) ? 1 : 0;
  // A rank of the last host has the result from its own reduction, so it receives none.
  const size_t results = reductions + (host_ == last ? 0 : 1);
  RunChunks(chunks, results, [&](size_t chunk, const std::function<void()>& have) {
    const size_t begin = chunk * chunk_elements;
    const size_t size = std::min(chunk_elements, elements - begin);
    const size_t bytes = size * item, result_bytes = size * result_item;
    std::byte* const own_result = BytesOf(result) + begin * result_item;
    for (size_t to = 0; to < ranks_; ++to) {
      std::byte* const part = BytesOf(parts) + (to * elements + begin) * item;
      const size_t column = hosts_.ColumnOf(to);
      if (!IsOwner(column)) {
        steps_.When({Send(hosts_.Owner(host_, column), Kind::kPart, to, part, bytes)});
        continue;
      }
      Reduce({part, size, parts.scalar_type(), result.scalar_type(), op, to, column,
              to == own_ ? own_result : nullptr},
             [=, this](std::byte* sum, const at::Tensor& memory) {
               const auto give = [this, memory] { staging_.Release(memory); };
               if (sum == own_result)
                 give();
               else if (sum != nullptr)
                 steps_.When({Send(to, Kind::kResult, to, sum, result_bytes)}, give);
               have();
             });
    }
    if (host_ == last) return;
    steps_.When({Receive(hosts_.Owner(last, hosts_.ColumnOf(own_)), Kind::kResult, own_, own_result,
                         result_bytes)},
                have);
  });
}

void LinkCollective::Spread(size_t from, std::byte* data, size_t bytes,
                            std::optional<size_t> complete) {
  std::vector<LinkTransfer> sends;
  for (const size_t to : hosts_.ReceiversOf(own_, from)) {
    if (to == complete) continue;
    sends.push_back(Send(to, own_ == from ? Kind::kPart : Kind::kForwarded, from, data, bytes));
  }
  if (own_ == from || own_ == complete) return steps_.When(sends);
  const size_t sender = hosts_.SenderTo(own_, from);
  // Forwards the message to other ranks; null if this rank does not forward.
  std::function<void()> forward;
  if (!sends.empty()) forward = [this, sends] { steps_.When(sends); };
  steps_.When({Receive(sender, sender == from ? Kind::kPart : Kind::kForwarded, from, data, bytes)},
              std::move(forward));
}

// Sends `tensor` of rank `root` to all ranks. The root of a large tensor sends a part to each rank,
// and the ranks then exchange the parts.
void LinkCollective::Broadcast(const at::Tensor& tensor, size_t root) {
  const size_t bytes = tensor.nbytes();
  if (bytes == 0) return;
  std::byte* const data = BytesOf(tensor);
  if (bytes <= kSmallBytes) {
    if (own_ != root) steps_.When({Receive(root, Kind::kResult, 0, data, bytes)});
    for (size_t rank = 0; rank < ranks_; ++rank) {
      if (own_ == root && rank != root) steps_.When({Send(rank, Kind::kResult, 0, data, bytes)});
    }
    return steps_.Run();
  }
  for (size_t rank = 0; rank < ranks_; ++rank) {
    const Range range = PartOf(0, bytes, rank, ranks_);
    std::byte* const part = data + range.begin;
    const auto spread = [=, this] { Spread(rank, part, range.size(), root); };
    if (rank == own_ && own_ != root) {
      steps_.When({Receive(root, Kind::kResult, rank, part, range.size())}, spread);
      continue;
    }
    if (own_ == root && rank != root)
      steps_.When({Send(rank, Kind::kResult, rank, part, range.size())});
    spread();
  }
  steps_.Run();
}

void LinkCollective::AllGather(const at::Tensor& input, const std::vector<at::Tensor>& outputs) {
  const size_t bytes = input.nbytes();
  if (bytes == 0) return;
  if (bytes <= kSmallBytes) {
    for (size_t i = 1; i < ranks_; ++i) {
      const size_t rank = (own_ + i) % ranks_;
      steps_.When({Receive(rank, Kind::kPart, 0, BytesOf(outputs[rank]), bytes),
                   Send(rank, Kind::kPart, 0, BytesOf(input), bytes)});
    }
  } else {
    // The data is sent in chunks, so that a rank can forward one chunk while it receives the next.
    const size_t chunk_bytes = hosts_.parts() > 1 ? ChunkBytes() : bytes;
    for (size_t begin = 0; begin < bytes; begin += chunk_bytes) {
      const size_t size = std::min(chunk_bytes, bytes - begin);
      for (size_t i = 1; i <= ranks_; ++i) {
        const size_t rank = (own_ + i) % ranks_;
        Spread(rank, BytesOf(rank == own_ ? input : outputs[rank]) + begin, size, std::nullopt);
      }
    }
  }
  if (BytesOf(outputs[own_]) != BytesOf(input))
    std::memcpy(BytesOf(outputs[own_]), BytesOf(input), bytes);
  steps_.Run();
}

void LinkCollective::AllToAll(const at::Tensor& input, const at::Tensor& output) {
  const size_t bytes = input.nbytes() / ranks_;
  if (bytes == 0) return;
  for (size_t i = 1; i < ranks_; ++i) {
    const size_t rank = (own_ + i) % ranks_;
    steps_.When({Receive(rank, Kind::kPart, 0, BytesOf(output) + rank * bytes, bytes),
                 Send(rank, Kind::kPart, 0, BytesOf(input) + rank * bytes, bytes)});
  }
  std::memcpy(BytesOf(output) + own_ * bytes, BytesOf(input) + own_ * bytes, bytes);
  steps_.Run();
}

// Returns when all ranks have called Barrier. After round k (from 0), it is certain on each rank
// that the 2^(k+1) ranks up to that rank have called Barrier.
void LinkCollective::Barrier() {
  uint64_t round = 0;
  for (size_t distance = 1; distance < ranks_; distance *= 2, ++round) {
    steps_.When({Receive((own_ + ranks_ - distance) % ranks_, Kind::kRound, round, nullptr, 0),
                 Send((own_ + distance) % ranks_, Kind::kRound, round, nullptr, 0)});
    steps_.Run();
  }
}

}  // namespace dslaunch
