#include "trainer/pipeline/stage_link.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/comm/backend_watch.h"
#include "trainer/comm/with_context.h"
#include "trainer/device/accelerator.h"

namespace dslaunch {
namespace {

// Maximum number of messages of a channel in flight. Gloo sends a message only after its receiver
// has requested it, so messages may wait for a slower stage. Schedules need two messages: while a
// stage receives one message, the previous stage computes the next.
constexpr size_t kMostInFlight = 4;

// The first tag of stage messages. It is larger than the tags of ProcessGroup (0) and ShardExchange
// (small numbers).
constexpr int kFirstTag = 1 << 24;

struct Header {
  int64_t micro_batch = 0;
  int64_t micro_batches = 0;
  // Sizes of the rest that follows this message. Both are 0 if this message already has the
  // payload.
  int64_t description_bytes = 0;
  int64_t payload_bytes = 0;
};
// Size of the header; a multiple of the alignment, so that the payload is aligned.
constexpr int64_t kHeaderBytes = 64;

int TagOf(const LinkChannel& channel) {
  return kFirstTag + 2 * channel.chunk + (channel.gradient ? 1 : 0);
}

// A message, which consists of a part for the host and a part for the device.
struct Packet {
  at::Tensor host, payload;  // parts for the host and for the device, both uint8
  // Tensors to send: on CPUs one tensor with both parts, else each part; empty tensors are omitted.
  std::vector<at::Tensor> sent;
};

Packet MakePacket(int64_t host_bytes, int64_t payload_bytes, c10::Device device) {
  const auto bytes_on = [](int64_t bytes, c10::Device where) {
    return at::empty({bytes}, at::TensorOptions(where).dtype(at::kByte));
  };
  Packet packet;
  if (device.is_cpu()) {
    const at::Tensor bytes = bytes_on(host_bytes + payload_bytes, device);
    packet.host = bytes.narrow(0, 0, host_bytes);
    packet.payload = bytes.narrow(0, host_bytes, payload_bytes);
    packet.sent = {bytes};
  } else {
    packet.host = bytes_on(host_bytes, c10::kCPU);
    packet.payload = bytes_on(payload_bytes, device);
    packet.sent = {packet.host, packet.payload};
  }
  std::erase_if(packet.sent, [](const at::Tensor& part) { return part.numel() == 0; });
  return packet;
}

std::string NameOf(const LinkChannel& channel, const LinkMessage& message) {
  return (channel.gradient ? "the gradients of micro-batch " : "the activations of micro-batch ") +
         std::to_string(message.micro_batch + 1) + " of " + std::to_string(message.micro_batches);
}

// A packet in flight.
struct Transfer {
  Packet packet;
  // Works for the tensors in packet.sent, one for each. Declared after the packet, so that the
  // works end before the packet's memory is freed.
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  // Description for errors, such as "sending the activations ... to stage 1 (rank 3)".
  std::string what;

  // Waits for the host's part of the packet.
  void WaitHost(std::chrono::milliseconds timeout) const {
    for (size_t i = 0; i < works.size(); ++i) {
      if (!packet.sent[i].is_cpu()) continue;
      WithContext(what, [&] {
        if (!works[i]->wait(timeout)) throw std::runtime_error("it was aborted");
      });
    }
  }
  // Waits for both parts. On a device the current stream waits without a deadline, because a wait
  // with a deadline would block the host. If the wait does not end, the BackendWatch of the
  // device's backend ends the process.
  void Wait(std::chrono::milliseconds timeout) const {
    WaitHost(timeout);
    for (size_t i = 0; i < works.size(); ++i) {
      if (!packet.sent[i].is_cpu()) WithContext(what, [&] { works[i]->wait(); });
    }
  }
};

// Returns the size in bytes of the host's part of a rest: the number of layout numbers, then these
// numbers.
int64_t DescriptionBytes(size_t numbers) {
  return static_cast<int64_t>(((numbers + 1) * sizeof(int64_t) + kHeaderBytes - 1) / kHeaderBytes *
                              kHeaderBytes);
}

Packet PackRest(const MessageLayout& layout, const Tensors& tensors, c10::Device device) {
  const std::vector<int64_t> numbers = ToNumbers(layout);
  Packet rest = MakePacket(DescriptionBytes(numbers.size()), PayloadBytes(layout), device);
  auto* const start = rest.host.mutable_data_ptr<uint8_t>();
  const auto count = static_cast<int64_t>(numbers.size());
  std::memcpy(start, &count, sizeof count);
  std::memcpy(start + sizeof count, numbers.data(), numbers.size() * sizeof numbers[0]);
  Pack(tensors, rest.payload);
  return rest;
}

MessageLayout ReadDescription(const at::Tensor& bytes) {
  return LayoutFromNumbers(static_cast<const int64_t*>(bytes.const_data_ptr()) + 1);
}

}  // namespace

class StageLink::Impl {
 public:
  Impl(const ProcessGroup& world, std::function<std::string(int rank)> name_of)
      : world_(world), name_of_(std::move(name_of)) {
    if (world.device().is_cpu()) return;
    const std::string key = world.NewKey("links");
    for (const char* const row : {"up", "down"}) {
      rows_.push_back(world.rank_device().accelerator->MakeBackend(
          c10::make_intrusive<c10d::PrefixStore>(key + row, world.store()), world.rank(),
          world.world_size(), world.timeout()));
      watches_.push_back(std::make_unique<BackendWatch>(rows_.back()));
    }
  }

  ~Impl() {
    watches_.clear();
    // Pending work may never end during stack unwinding, so the backends are leaked until the
    // process exits.
    const bool fails = std::uncaught_exceptions() > 0;
    for (auto& row : rows_) {
      if (fails) {
        row.release();
      } else {
        row->shutdown();
      }
    }
  }

  void Connect(std::vector<int> peers) {
    if (rows_.empty()) return;
    std::ranges::sort(peers);
    const at::Tensor byte = at::zeros({1}, at::TensorOptions(world_.device()).dtype(at::kByte));
    std::vector<at::Tensor> bytes = {byte};
    for (size_t row = 0; row < rows_.size(); ++row) {
      for (const int peer : peers) {
        const bool sends = RowTo(peer) == row;
        WithContext("connecting to " + name_of_(peer), [&] {
          const auto work = sends ? rows_[row]->send(bytes, peer, /*tag=*/0)
                                  : rows_[row]->recv(bytes, peer, /*tag=*/0);
          work->wait();
        });
      }
    }
  }

  void Send(const LinkChannel& channel, const Tensors& tensors, const LinkMessage& message) {
    Outbox& outbox = outboxes_[channel];
    const MessageLayout layout = LayoutOf(tensors);
    const std::string what =
        "sending " + NameOf(channel, message) + " to " + name_of_(channel.peer);
    if (channel.gradient) {
      const int64_t size = PayloadBytes(layout);
      if (size == 0) return;
      Packet packet = MakePacket(0, size, world_.device());
      Pack(tensors, packet.payload);
      return Post(channel, outbox, std::move(packet), what);
    }
    const bool fits = layout == outbox.settled;
    Rest rest{layout, {}, what};
    if (!fits) rest.packet = PackRest(layout, tensors, world_.device());
    Packet packet = MakePacket(kHeaderBytes, outbox.settled ? PayloadBytes(*outbox.settled) : 0,
                               world_.device());
    const Header header{message.micro_batch, message.micro_batches,
                        fits ? 0 : rest.packet->host.numel(),
                        fits ? 0 : rest.packet->payload.numel()};
    std::memcpy(packet.host.mutable_data_ptr(), &header, sizeof header);
    if (fits) Pack(tensors, packet.payload);
    outbox.unsettled.push_back(std::move(rest));
    Post(channel, outbox, std::move(packet), what);
  }

  void SendRest(const LinkChannel& channel) {
    Outbox& outbox = outboxes_.at(channel);
    Rest rest = std::move(outbox.unsettled.at(0));
    outbox.unsettled.pop_front();
    outbox.settled = std::move(rest.layout);
    if (rest.packet) Post(channel, outbox, *std::move(rest.packet), rest.what);
  }

  void BeginReceive(const LinkChannel& channel, const LinkMessage& message) {
    Inbox& inbox = inboxes_[channel];
    Arrival arrival{message, inbox.settled.value_or(MessageLayout{}), {}};
    arrival.transfer = Receive(channel, message, kHeaderBytes, PayloadBytes(arrival.layout));
    inbox.arrivals.push_back(std::move(arrival));
  }

  void BeginReceiveGradients(const LinkChannel& channel, const MessageLayout& like,
                             const LinkMessage& message) {
    Arrival arrival{message, GradientsOf(like), {}};
    arrival.transfer = Receive(channel, message, 0, PayloadBytes(arrival.layout));
    inboxes_[channel].arrivals.push_back(std::move(arrival));
  }

  Tensors FinishReceive(const LinkChannel& channel) {
    Inbox& inbox = inboxes_.at(channel);
    Arrival arrival = std::move(inbox.arrivals.at(0));
    inbox.arrivals.pop_front();
    arrival.transfer.Wait(world_.timeout());
    if (channel.gradient) return Unpack(arrival.layout, arrival.transfer.packet.payload);
    Header header;
    std::memcpy(&header, arrival.transfer.packet.host.const_data_ptr(), sizeof header);
    Check(header, channel, arrival.message);
    if (header.description_bytes == 0) {
      inbox.settled = arrival.layout;
      return Unpack(arrival.layout, arrival.transfer.packet.payload);
    }
    const Transfer rest =
        Receive(channel, arrival.message, header.description_bytes, header.payload_bytes);
    rest.Wait(world_.timeout());
    inbox.settled = ReadDescription(rest.packet.host);
    return Unpack(*inbox.settled, rest.packet.payload);
  }

  void Drain() {
    for (auto& [channel, outbox] : outboxes_) {
      for (; !outbox.transfers.empty(); outbox.transfers.pop_front()) {
        outbox.transfers.front().Wait(world_.timeout());
      }
    }
  }

 private:
  struct Rest {
    MessageLayout layout;
    // Rest of the message; nullopt if the message already had the payload.
    std::optional<Packet> packet;
    std::string what;
  };
  struct Outbox {
    std::optional<MessageLayout> settled;  // layout that the receiver expects in the next message
    std::deque<Rest> unsettled;
    std::deque<Transfer> transfers;
  };
  struct Arrival {
    LinkMessage message;
    MessageLayout layout;  // expected layout, for which memory is allocated
    Transfer transfer;
  };
  struct Inbox {
    std::optional<MessageLayout> settled;
    std::deque<Arrival> arrivals;
  };

  // Returns the index in rows_ of the backend for messages to `peer` (RowTo) or from `peer`
  // (RowFrom). Only messages in the same direction keep their order, so two ranks use a separate
  // backend for each direction.
  size_t RowTo(int peer) const { return world_.rank() < peer ? 0 : 1; }
  size_t RowFrom(int peer) const { return world_.rank() > peer ? 0 : 1; }

  void Post(const LinkChannel& channel, Outbox& outbox, Packet packet, const std::string& what) {
    if (outbox.transfers.size() == kMostInFlight) {
      outbox.transfers.front().Wait(world_.timeout());
      outbox.transfers.pop_front();
    }
    Transfer transfer{std::move(packet), {}, what};
    for (const at::Tensor& part : transfer.packet.sent) {
      std::vector<at::Tensor> tensors = {part};
      transfer.works.push_back(WithContext(what, [&] {
        return part.is_cpu() ? world_.c10d_group()->send(tensors, channel.peer, TagOf(channel))
                             : rows_[RowTo(channel.peer)]->send(tensors, channel.peer, /*tag=*/0);
      }));
    }
    outbox.transfers.push_back(std::move(transfer));
  }

  Transfer Receive(const LinkChannel& channel, const LinkMessage& message, int64_t host_bytes,
                   int64_t payload_bytes) {
    Transfer transfer{
        MakePacket(host_bytes, payload_bytes, world_.device()),
        {},
        "waiting for " + NameOf(channel, message) + " from " + name_of_(channel.peer)};
    for (const at::Tensor& part : transfer.packet.sent) {
      std::vector<at::Tensor> tensors = {part};
      transfer.works.push_back(WithContext(transfer.what, [&] {
        return part.is_cpu() ? world_.c10d_group()->recv(tensors, channel.peer, TagOf(channel))
                             : rows_[RowFrom(channel.peer)]->recv(tensors, channel.peer, /*tag=*/0);
      }));
    }
    return transfer;
  }

  void Check(const Header& header, const LinkChannel& channel, const LinkMessage& expected) const {
    const std::string peer = name_of_(channel.peer), own = name_of_(world_.rank());
    if (header.micro_batches != expected.micro_batches) {
      throw TrainError(ExitCode::kBadInput,
                       peer + " has a batch of " + std::to_string(header.micro_batches) +
                           " micro-batches, but " + own + " has a batch of " +
                           std::to_string(expected.micro_batches) +
                           "; all ranks must make the same calls with the same number");
    }
    if (header.micro_batch != expected.micro_batch) {
      throw TrainError(ExitCode::kInternal,
                       peer + " sent micro-batch " + std::to_string(header.micro_batch + 1) +
                           ", but " + own + " expects " + std::to_string(expected.micro_batch + 1));
    }
  }

  const ProcessGroup& world_;
  std::function<std::string(int rank)> name_of_;
  // The backends for messages from lower to higher ranks, and from higher to lower ranks. With two
  // backends, a send does not wait for an earlier receive. Empty on CPUs.
  std::vector<c10::intrusive_ptr<c10d::Backend>> rows_;
  // Watches of the backends in rows_, one for each.
  std::vector<std::unique_ptr<BackendWatch>> watches_;
  std::map<LinkChannel, Outbox> outboxes_;
  std::map<LinkChannel, Inbox> inboxes_;
};

StageLink::StageLink(const ProcessGroup& world, std::function<std::string(int rank)> name_of)
    : impl_(std::make_unique<Impl>(world, std::move(name_of))) {}
StageLink::~StageLink() = default;

void StageLink::Connect(const std::vector<int>& peers) { impl_->Connect(peers); }
void StageLink::Send(const LinkChannel& channel, const Tensors& tensors,
                     const LinkMessage& message) {
  impl_->Send(channel, tensors, message);
}
void StageLink::SendRest(const LinkChannel& channel) { impl_->SendRest(channel); }
void StageLink::BeginReceive(const LinkChannel& channel, const LinkMessage& message) {
  impl_->BeginReceive(channel, message);
}
void StageLink::BeginReceiveGradients(const LinkChannel& channel, const MessageLayout& like,
                                      const LinkMessage& message) {
  impl_->BeginReceiveGradients(channel, like, message);
}
Tensors StageLink::FinishReceive(const LinkChannel& channel) {
  return impl_->FinishReceive(channel);
}
void StageLink::Drain() { impl_->Drain(); }

}  // namespace dslaunch
