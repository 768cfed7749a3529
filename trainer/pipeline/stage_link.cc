#include "trainer/pipeline/stage_link.h"

#include <ATen/ATen.h>

#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/comm/with_context.h"

namespace dslaunch {
namespace {

// Gloo moves a message once its receiver has asked for it and does not say when it has left, so
// this bounds what waits for a slower stage. Schedules need two: while a stage takes one message,
// the stage before it computes the next.
constexpr size_t kMostInFlight = 4;

// Above those of ProcessGroup (0) and ShardExchange (units).
constexpr int kFirstTag = 1 << 24;

struct Header {
  int64_t micro_batch = 0;
  int64_t micro_batches = 0;
  int64_t rest_bytes = 0;  // of the message that follows; 0: the payload is in this one
};
constexpr int64_t kHeaderBytes = 64;  // keeps the payload aligned

int TagOf(const LinkChannel& channel) {
  return kFirstTag + 2 * channel.chunk + (channel.gradient ? 1 : 0);
}

at::Tensor MakeBytes(int64_t bytes) { return at::empty({bytes}, at::kByte); }

at::Tensor AfterHeader(const at::Tensor& bytes) {
  return bytes.narrow(0, kHeaderBytes, bytes.numel() - kHeaderBytes);
}

std::string NameOf(const LinkChannel& channel, const LinkMessage& message) {
  return (channel.gradient ? "the gradients of micro-batch " : "the activations of micro-batch ") +
         std::to_string(message.micro_batch + 1) + " of " + std::to_string(message.micro_batches);
}

// Bytes on their way.
struct Transfer {
  at::Tensor bytes;
  c10::intrusive_ptr<c10d::Work> work;  // reads or writes them, and ends first
  std::string what;                     // "sending the activations ... to stage 1 (rank 3)"

  void Wait(std::chrono::milliseconds timeout) const {
    WithContext(what, [this, timeout] {
      if (!work->wait(timeout)) throw std::runtime_error("it was aborted");
    });
  }
};

// The rest: how many numbers describe the layout, these, and the payload.
int64_t DescriptionBytes(size_t numbers) {
  return static_cast<int64_t>(((numbers + 1) * sizeof(int64_t) + kHeaderBytes - 1) / kHeaderBytes *
                              kHeaderBytes);
}

at::Tensor PackRest(const MessageLayout& layout, const Tensors& tensors) {
  const std::vector<int64_t> numbers = ToNumbers(layout);
  const int64_t description = DescriptionBytes(numbers.size());
  const int64_t payload = PayloadBytes(layout);
  at::Tensor bytes = MakeBytes(description + payload);
  auto* const start = bytes.mutable_data_ptr<uint8_t>();
  const auto count = static_cast<int64_t>(numbers.size());
  std::memcpy(start, &count, sizeof count);
  std::memcpy(start + sizeof count, numbers.data(), numbers.size() * sizeof numbers[0]);
  Pack(tensors, bytes.narrow(0, description, payload));
  return bytes;
}

std::pair<MessageLayout, Tensors> UnpackRest(const at::Tensor& bytes) {
  const auto* const numbers = static_cast<const int64_t*>(bytes.const_data_ptr());
  const int64_t description = DescriptionBytes(static_cast<size_t>(numbers[0]));
  MessageLayout layout = LayoutFromNumbers(numbers + 1);
  Tensors tensors = Unpack(layout, bytes.narrow(0, description, bytes.numel() - description));
  return {std::move(layout), std::move(tensors)};
}

}  // namespace

class StageLink::Impl {
 public:
  Impl(const ProcessGroup& world, std::function<std::string(int rank)> name_of)
      : world_(world), name_of_(std::move(name_of)) {}

  void Send(const LinkChannel& channel, const Tensors& tensors, const LinkMessage& message) {
    Outbox& outbox = outboxes_[channel];
    const MessageLayout layout = LayoutOf(tensors);
    const std::string what =
        "sending " + NameOf(channel, message) + " to " + name_of_(channel.peer);
    if (channel.gradient) {
      const int64_t size = PayloadBytes(layout);
      if (size == 0) return;
      const at::Tensor bytes = MakeBytes(size);
      Pack(tensors, bytes);
      return Post(channel, outbox, bytes, what);
    }
    const bool fits = layout == outbox.settled;
    Rest rest{layout, {}, what};
    if (!fits) rest.bytes = PackRest(layout, tensors);
    const at::Tensor bytes =
        MakeBytes(kHeaderBytes + (outbox.settled ? PayloadBytes(*outbox.settled) : 0));
    const Header header{message.micro_batch, message.micro_batches, fits ? 0 : rest.bytes.numel()};
    std::memcpy(bytes.mutable_data_ptr(), &header, sizeof header);
    if (fits) Pack(tensors, AfterHeader(bytes));
    outbox.unsettled.push_back(std::move(rest));
    Post(channel, outbox, bytes, what);
  }

  void SendRest(const LinkChannel& channel) {
    Outbox& outbox = outboxes_.at(channel);
    Rest rest = std::move(outbox.unsettled.at(0));
    outbox.unsettled.pop_front();
    outbox.settled = std::move(rest.layout);
    if (rest.bytes.defined()) Post(channel, outbox, rest.bytes, rest.what);
  }

  void BeginReceive(const LinkChannel& channel, const LinkMessage& message) {
    Inbox& inbox = inboxes_[channel];
    Arrival arrival{message, inbox.settled.value_or(MessageLayout{}), {}};
    arrival.transfer = Receive(channel, message, kHeaderBytes + PayloadBytes(arrival.layout));
    inbox.arrivals.push_back(std::move(arrival));
  }

  void BeginReceiveGradients(const LinkChannel& channel, const MessageLayout& like,
                             const LinkMessage& message) {
    Arrival arrival{message, GradientsOf(like), {}};
    const int64_t bytes = PayloadBytes(arrival.layout);
    if (bytes > 0) {
      arrival.transfer = Receive(channel, message, bytes);
    } else {
      arrival.transfer.bytes = MakeBytes(0);
    }
    inboxes_[channel].arrivals.push_back(std::move(arrival));
  }

  Tensors FinishReceive(const LinkChannel& channel) {
    Inbox& inbox = inboxes_.at(channel);
    Arrival arrival = std::move(inbox.arrivals.at(0));
    inbox.arrivals.pop_front();
    if (arrival.transfer.work) arrival.transfer.Wait(world_.timeout());
    if (channel.gradient) return Unpack(arrival.layout, arrival.transfer.bytes);
    Header header;
    std::memcpy(&header, arrival.transfer.bytes.const_data_ptr(), sizeof header);
    Check(header, channel, arrival.message);
    if (header.rest_bytes == 0) {
      inbox.settled = arrival.layout;
      return Unpack(arrival.layout, AfterHeader(arrival.transfer.bytes));
    }
    arrival.transfer = Receive(channel, arrival.message, header.rest_bytes);
    arrival.transfer.Wait(world_.timeout());
    auto [layout, tensors] = UnpackRest(arrival.transfer.bytes);
    inbox.settled = std::move(layout);
    return tensors;
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
    at::Tensor bytes;  // undefined: there is none
    std::string what;
  };
  struct Outbox {
    std::optional<MessageLayout> settled;  // what the receiver makes room for
    std::deque<Rest> unsettled;
    std::deque<Transfer> transfers;
  };
  struct Arrival {
    LinkMessage message;
    MessageLayout layout;  // for which there is room
    Transfer transfer;
  };
  struct Inbox {
    std::optional<MessageLayout> settled;
    std::deque<Arrival> arrivals;
  };

  void Post(const LinkChannel& channel, Outbox& outbox, const at::Tensor& bytes,
            const std::string& what) {
    if (outbox.transfers.size() == kMostInFlight) {
      outbox.transfers.front().Wait(world_.timeout());
      outbox.transfers.pop_front();
    }
    std::vector<at::Tensor> tensors = {bytes};
    auto work = WithContext(
        what, [&] { return world_.c10d_group()->send(tensors, channel.peer, TagOf(channel)); });
    outbox.transfers.push_back({bytes, std::move(work), what});
  }

  Transfer Receive(const LinkChannel& channel, const LinkMessage& message, int64_t bytes) const {
    std::vector<at::Tensor> tensors = {MakeBytes(bytes)};
    const std::string what =
        "waiting for " + NameOf(channel, message) + " from " + name_of_(channel.peer);
    auto work = WithContext(
        what, [&] { return world_.c10d_group()->recv(tensors, channel.peer, TagOf(channel)); });
    return {tensors[0], std::move(work), what};
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
  std::map<LinkChannel, Outbox> outboxes_;
  std::map<LinkChannel, Inbox> inboxes_;
};

StageLink::StageLink(const ProcessGroup& world, std::function<std::string(int rank)> name_of)
    : impl_(std::make_unique<Impl>(world, std::move(name_of))) {}
StageLink::~StageLink() = default;

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
