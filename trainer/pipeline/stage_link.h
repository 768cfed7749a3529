// What the stages of one replica send each other.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "dslaunch/pipeline.h"
#include "dslaunch/process_group.h"

namespace dslaunch {

// Which messages follow each other: those with the same kind and chunk between two ranks.
struct LinkChannel {
  int peer = 0;           // world rank
  bool gradient = false;  // else activation
  int chunk = 0;          // of the receiver for activations, of the sender for gradients
};

// Asynchronous: messages are in flight while stages compute. A message of activations carries what
// it holds (how many tensors, dtypes, shapes, which need a gradient); one that holds the same as
// the last one of its channel needs no other message, and its memory is asked for before it comes.
// One thread.
class StageLink {
 public:
  explicit StageLink(const ProcessGroup& world);
  ~StageLink();  // waits for nobody while an exception is passing

  // `tensors` are copied, or held until they have left. `what` is for messages.
  void Send(const LinkChannel& channel, const Tensors& tensors, const std::string& what);

  // Begins to receive the next message of the channel. Finish gives it.
  void BeginReceive(const LinkChannel& channel, const std::string& what);
  // With requires_grad as at the sender, as leaves.
  Tensors FinishReceive(const LinkChannel& channel);

  // Gradients of `like`, whose shapes both sides know: those of them that require one.
  void BeginReceiveGradients(const LinkChannel& channel, const Tensors& like,
                             const std::string& what);

  // Until all that was sent has left. Before the memory of a batch is given up.
  void Drain();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
