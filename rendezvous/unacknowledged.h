// What a side of the rendezvous stream has said and the other side has not acknowledged, to be said
// again on the next connection. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace dslaunch {

// Of messages with a `number`, which count from 1.
template <class Message>
class Unacknowledged {
 public:
  // Gives the message its number, and keeps a copy.
  void Keep(Message& message) {
    message.set_number(++last_);
    kept_.push_back(message);
  }
  // The other side has all up to this number.
  void Acknowledge(uint64_t number) {
    while (!kept_.empty() && kept_.front().number() <= number) kept_.pop_front();
  }
  const std::deque<Message>& kept() const { return kept_; }

 private:
  std::deque<Message> kept_;  // oldest first
  uint64_t last_ = 0;
};

// The other direction: each message is taken once, however often it comes.
class ReceivedNumbers {
 public:
  // False: it was taken before. `number` 0 is always taken.
  bool Take(uint64_t number) {
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
