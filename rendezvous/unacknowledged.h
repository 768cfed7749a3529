// Keeps the messages that one side of the rendezvous stream has sent and the other side has not
// acknowledged, so that they can be sent again on the next connection. Performs no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace dslaunch {

// Assigns numbers to messages, from 1, and keeps copies of the messages until they are
// acknowledged.
template <class Message>
class Unacknowledged {
 public:
  // Sets the number of the message and keeps a copy.
  void Keep(Message& message) {
    message.set_number(++last_);
    kept_.push_back(message);
  }
  // Drops all messages up to `number`, because the other side has received them.
  void Acknowledge(uint64_t number) {
    while (!kept_.empty() && kept_.front().number() <= number) kept_.pop_front();
  }
  const std::deque<Message>& kept() const { return kept_; }

 private:
  std::deque<Message> kept_;  // unacknowledged messages, oldest first
  uint64_t last_ = 0;
};

// Tracks the numbers of received messages, so that each message is handled once, however often it
// arrives.
class ReceivedNumbers {
 public:
  // Returns whether to handle a message. Returns false if its number was accepted before. Number 0
  // is always accepted.
  bool Accept(uint64_t number) {
    if (number == 0) return true;
    if (number <= newest_) return false;
    newest_ = number;
    return true;
  }
  uint64_t newest() const { return newest_; }

 private:
  uint64_t newest_ = 0;
};

}  // namespace dslaunch
