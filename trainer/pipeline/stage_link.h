// What the stages of one replica send each other.
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

// Which messages follow each other: those with the same kind and chunk between two ranks.
struct LinkChannel {
  int peer = 0;           // world rank
  bool gradient = false;  // else activation
  int chunk = 0;          // of the receiver for activations, of the sender for gradients
  auto operator<=>(const LinkChannel&) const = default;
};

// What a message is about. Both sides must say the same.
struct LinkMessage {
  int64_t micro_batch = 0;
  int64_t micro_batches = 1;  // of this batch
};

// Asynchronous: messages are in flight while stages compute. A message of activations says what it
// holds (how many tensors, dtypes, shapes, which need a gradient). The receiver makes room for it
// before it is there, for what the message before it held; one that holds something else is
// followed by another message, the rest.
//
// What two ranks exchange may travel in one row, where nothing overtakes anything (NCCL). The rest
// has its place in that row when the receiver finishes the message, so the sender has to know when
// that is: deferred_sends.h.
//
// On a device tensors travel from device to device, in a communicator for each pair of ranks and
// direction, and no host waits for a device. What a message says of itself travels from host to
// host beside it: the sender's host says it when it has given the device its work, and the
// receiver's reads it before it gives its own device the work that follows.
//
// One thread. Errors while waiting are std::runtime_error, naming the other rank and the message,
// also after ProcessGroup::timeout() and where that rank is lost; TrainError where the two do not
// agree on the batch.
class StageLink {
 public:
  // `name_of` a world rank, for messages: "stage 1 (rank 3)". On devices collective over `world`.
  StageLink(const ProcessGroup& world, std::function<std::string(int rank)> name_of);
  ~StageLink();  // does not wait: Drain does

  // On devices: connects to `peers`, which do the same with this rank. Without it two ranks connect
  // with their first message, in which each waits for the other.
  void Connect(const std::vector<int>& peers);

  // `tensors` are copied; all of them are defined, dense and on world.device(). Where several
  // messages of the channel have not left yet, it waits for the oldest; on a device the current
  // stream does.
  void Send(const LinkChannel& channel, const Tensors& tensors, const LinkMessage& message);
  // Of activations: sends the rest of the oldest message whose rest has not been asked for, if it
  // has one.
  void SendRest(const LinkChannel& channel);

  // Begins to receive the next message of activations.
  void BeginReceive(const LinkChannel& channel, const LinkMessage& message);
  // Gradients of `like`, whose shapes both sides know: those of them that require one. Where none
  // does, there is no message.
  void BeginReceiveGradients(const LinkChannel& channel, const MessageLayout& like,
                             const LinkMessage& message);
  // The oldest message that was begun. Activations require gradients as at the sender, as leaves.
  Tensors FinishReceive(const LinkChannel& channel);

  // Until all that was sent has left.
  void Drain();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
