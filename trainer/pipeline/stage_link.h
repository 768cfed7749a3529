// Exchanges messages between the stages of one replica.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dslaunch/pipeline.h"
#include "dslaunch/process_group.h"
#include "trainer/pipeline/message_layout.h"

namespace dslaunch {

// A stream of messages between two stages, which arrive in the order in which they were sent.
struct LinkChannel {
  int peer = 0;           // rank of the other stage in the world group
  bool gradient = false;  // true for gradients, false for activations
  int chunk = 0;          // chunk of the receiver for activations, of the sender for gradients
  auto operator<=>(const LinkChannel&) const = default;
};

// Describes the micro-batch of a message. Sender and receiver must pass the same description.
struct LinkMessage {
  int64_t micro_batch = 0;
  int64_t micro_batches = 1;  // number of micro-batches in the whole batch
};

// Sends and receives messages asynchronously, while stages compute. The layout of activations
// (number of tensors, dtypes, shapes, which require a gradient) may change between messages. The
// receiver allocates memory before a message arrives, for the layout of the previous message. If
// the layout has changed, the message has no payload, and a second message with the layout and the
// payload follows: the rest.
//
// All messages between two ranks, in both directions together, may have to keep one order (NCCL).
// The rest is transferred when the receiver finishes the message. The sender must therefore send
// the rest at that point of the order, which deferred_sends.h determines.
//
// On a device, tensors are sent from device to device by a communicator for each pair of ranks and
// direction, and no host waits for a device. The header and the layout are sent from host to host.
// The sender's host sends them after it has enqueued the device's work, and the receiver's host
// reads them before it enqueues the following work.
//
// Not thread-safe. A wait that fails, for example by ProcessGroup::timeout() or because a rank is
// lost, throws std::runtime_error, naming the other rank and the message. Throws TrainError if the
// two ranks have different batches.
class StageLink {
 public:
  // Creates the link of this rank. `name_of` returns the name of a rank of `world` in messages,
  // such as "stage 1 (rank 3)". Collective over `world` on devices.
  StageLink(const ProcessGroup& world, std::function<std::string(int rank)> name_of);
  // Does not wait for unsent messages; call Drain before if they must arrive.
  ~StageLink();

  // Connects to `peers`, which must also connect to this rank. Without this call two ranks connect
  // with their first message, for which each waits for the other. Does nothing on CPUs.
  void Connect(const std::vector<int>& peers);

  // Sends a copy of `tensors`, which must be defined, dense and on world.device(). If kMostInFlight
  // messages of the channel are still in flight, waits for the oldest; on a device the current
  // stream waits.
  void Send(const LinkChannel& channel, const Tensors& tensors, const LinkMessage& message);
  // Settles the channel's oldest unsettled message of activations by sending the rest, if the
  // message has a rest. Call it once for each message, in the order of deferred_sends.h.
  void SendRest(const LinkChannel& channel);

  // Begins to receive the next message of activations.
  void BeginReceive(const LinkChannel& channel, const LinkMessage& message);
  // Begins to receive gradients for the tensors of `like` that require a gradient. Sender and
  // receiver have the same `like`, so no layout is sent. There is no message if no tensor requires
  // a gradient.
  void BeginReceiveGradients(const LinkChannel& channel, const MessageLayout& like,
                             const LinkMessage& message);
  // Waits for the oldest receive of the channel that was begun, and returns the received tensors.
  // Activations are leaves of autograd, which require a gradient if the sender's tensors do.
  Tensors FinishReceive(const LinkChannel& channel);

  // Waits until all messages are sent.
  void Drain();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
