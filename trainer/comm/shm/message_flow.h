// Transfers messages between two ranks of one host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "trainer/comm/shm/layout.h"

namespace dslaunch {

// Sends the messages from one rank to another. A message is written after its receiver has
// requested it, so messages of different tags may be sent and awaited in any order. Messages with
// the same tag arrive in the order in which they were sent. Never waits. Not thread-safe.

class MessageSender {
 public:
  MessageSender(SharedLayout layout, size_t from, size_t to)
      : words_(&layout.stream(from, to)),
        ring_(layout.ring(from, to)),
        bell_(&layout.words(to).bell) {}

  struct Message {
    uint64_t id = 0;  // id of the message, chosen by the caller
    uint64_t tag = 0;
    const std::byte* data = nullptr;
    size_t bytes = 0;
  };
  void Send(const Message& message);
  // Drops a message that was not requested yet. Returns false if the message was requested or is
  // done.
  bool Drop(uint64_t id);

  // Makes the progress that is possible now, and calls `sent` for each message that was completely
  // written. Returns false if no progress was possible.
  bool Advance(const std::function<void(uint64_t id)>& sent);

 private:
  struct Outgoing {
    Message message;
    uint64_t request = 0;
  };
  bool ReadRequests();
  bool Write(const std::function<void(uint64_t id)>& sent);

  StreamWords* words_;
  std::byte* ring_;
  Doorbell* bell_;
  std::deque<Message> unasked_;
  std::deque<Outgoing> unheeded_;  // requests for messages that were not passed to this object yet
  std::deque<Outgoing> outgoing_;
  bool header_sent_ = false;  // true if the header of outgoing_[0] was sent
  size_t sent_bytes_ = 0;
};

class MessageReceiver {
 public:
  MessageReceiver(SharedLayout layout, size_t from, size_t to)
      : words_(&layout.stream(from, to)),
        ring_(layout.ring(from, to)),
        bell_(&layout.words(from).bell) {}

  struct Place {
    uint64_t id = 0;  // id of the message, chosen by the caller
    uint64_t tag = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  void Receive(const Place& place);

  // Makes the progress that is possible now, and calls `received` for each message that was
  // completely read. Returns false if no progress was possible. Throws std::runtime_error if a
  // message's size differs from its Place; no message can be received after that.
  bool Advance(const std::function<void(uint64_t id)>& received);

 private:
  bool Ask();
  bool Read(const std::function<void(uint64_t id)>& received);

  StreamWords* words_;
  std::byte* ring_;
  Doorbell* bell_;
  std::deque<Place> unasked_;
  std::map<uint64_t, Place> asked_;   // expected messages, by number of the request
  std::optional<uint64_t> incoming_;  // number of the request whose message is being read
  size_t read_bytes_ = 0;
};

}  // namespace dslaunch
