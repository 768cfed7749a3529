// Messages between the stages of one replica.
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

// Messages of one channel arrive in the order in which they were sent.
struct LinkChannel {
  int peer = 0;           // world rank
  bool gradient = false;  // else activations
  int chunk = 0;          // the receiver's for activations, the sender's for gradients
  auto operator<=>(const LinkChannel&) const = default;
};

// Describes the micro-batch of a message. Sender and receiver must pass the same description.
struct LinkMessage {
  int64_t micro_batch = 0;
  int64_t micro_batches = 1;  // in this batch
};

// Sends and receives asynchronously: messages are in flight while stages compute. A message of
// activations carries its layout (number of tensors, dtypes, shapes, which require a gradient). The
// receiver allocates memory before the message arrives, for the layout of the previous message. If
// the layout has changed, the message has no payload, and a second message follows: the rest.
//
// The messages between two ranks may have to keep one order, in both directions together (NCCL).
// The rest follows when the receiver finishes the message, so the sender must know that point in
// the order: deferred_sends.h.
//
// On a device tensors are sent from device to device, in a communicator for each pair of ranks and
// direction, and no host waits for a device. The layout is sent from host to host beside them: the
// sender's host sends it after queueing the device's work, and the receiver's host reads it before
// queueing the work that follows.
//
// One thread. A wait that fails, also because of ProcessGroup::timeout() or a lost rank, throws
// std::runtime_error, naming the other rank and the message. TrainError if the two ranks do not
// agree on the batch.
class StageLink {
 public:
  // `name_of` names a world rank in messages: "stage 1 (rank 3)". Collective over `world` on
  // devices.
  StageLink(const ProcessGroup& world, std::function<std::string(int rank)> name_of);
  ~StageLink();  // does not wait; see Drain

  // Connects to `peers`, which must do the same with this rank. Otherwise two ranks connect with
  // their first message, and each waits for the other. Does nothing on CPUs.
  void Connect(const std::vector<int>& peers);

  // Sends a copy of `tensors`, which must be defined, dense and on world.device(). If several
  // messages of the channel are still in flight, this waits for the oldest; on a device the current
  // stream waits.
  void Send(const LinkChannel& channel, const Tensors& tensors, const LinkMessage& message);
  // Settles the oldest message of activations for which this was not called yet: sends the rest, if
  // there is one. Call it once for each message, in the order of deferred_sends.h.
  void SendRest(const LinkChannel& channel);

  // Begins to receive the next message of activations.
  void BeginReceive(const LinkChannel& channel, const LinkMessage& message);
  // Begins to receive gradients for those tensors of `like` that require one; both sides know their
  // shapes. There is no message if none does.
  void BeginReceiveGradients(const LinkChannel& channel, const MessageLayout& like,
                             const LinkMessage& message);
  // Waits for the oldest message that was begun, and returns its tensors. Activations are leaves
  // that require a gradient if they do at the sender.
  Tensors FinishReceive(const LinkChannel& channel);

  // Waits until all messages were sent.
  void Drain();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
