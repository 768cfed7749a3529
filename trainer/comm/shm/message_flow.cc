#include "trainer/comm/shm/message_flow.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace dslaunch {
namespace {

// Number of bytes after which the other side is woken, so that both sides copy at the same time.
constexpr size_t kMessagePartBytes = kRingBytes / 4;
constexpr size_t kStep = 16;  // alignment of headers and data in a ring, in bytes

struct Header {
  uint64_t request = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(Header) == kStep);

constexpr size_t Padded(size_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

void CopyIn(std::byte* ring, uint64_t position, const void* data, size_t bytes) {
  const size_t at = position % kRingBytes;
  const size_t first = std::min(bytes, kRingBytes - at);
  std::memcpy(ring + at, data, first);
  std::memcpy(ring, static_cast<const std::byte*>(data) + first, bytes - first);
}

void CopyOut(const std::byte* ring, uint64_t position, void* data, size_t bytes) {
  const size_t at = position % kRingBytes;
  const size_t first = std::min(bytes, kRingBytes - at);
  std::memcpy(data, ring + at, first);
  std::memcpy(static_cast<std::byte*>(data) + first, ring, bytes - first);
}

}  // namespace

void MessageSender::Send(const Message& message) {
  const auto request = std::find_if(unheeded_.begin(), unheeded_.end(), [&](const Outgoing& asked) {
    return asked.message.tag == message.tag;
  });
  if (request == unheeded_.end()) {
    unasked_.push_back(message);
    return;
  }
  outgoing_.push_back({message, request->request});
  unheeded_.erase(request);
}

bool MessageSender::Drop(uint64_t id) {
  return std::erase_if(unasked_, [&](const Message& message) { return message.id == id; }) > 0;
}

bool MessageSender::Advance(const std::function<void(uint64_t id)>& sent) {
  bool moved = ReadRequests();
  while (Write(sent)) moved = true;
  return moved;
}

bool MessageSender::ReadRequests() {
  const uint64_t asked = words_->asked.load();
  uint64_t heard = words_->heard.load();
  if (heard == asked) return false;
  for (; heard < asked; ++heard) {
    const uint64_t tag = words_->requests[heard % kMaxRequests].tag;
    const auto message = std::find_if(unasked_.begin(), unasked_.end(),
                                      [&](const Message& given) { return given.tag == tag; });
    if (message == unasked_.end()) {
      Outgoing request;
      request.message.tag = tag;
      request.request = heard;
      unheeded_.push_back(request);
      continue;
    }
    outgoing_.push_back({*message, heard});
    unasked_.erase(message);
  }
  words_->heard.store(heard);
  bell_->Ring();  // wakes the receiver, which may wait for room for requests
  return true;
}

bool MessageSender::Write(const std::function<void(uint64_t id)>& sent) {
  if (outgoing_.empty()) return false;
  const auto& [message, request] = outgoing_.front();
  const uint64_t written = words_->written.load();
  const size_t room = kRingBytes - static_cast<size_t>(written - words_->read.load());
  if (!header_sent_) {
    if (room < kStep) return false;
    const Header header = {request, message.bytes};
    CopyIn(ring_, written, &header, sizeof header);
    header_sent_ = true;
    sent_bytes_ = 0;
    words_->written.store(written + sizeof header);
  } else {
    const size_t left = message.bytes - sent_bytes_;
    const size_t bytes = std::min({left, room / kStep * kStep, kMessagePartBytes});
    if (bytes == 0 && left > 0) return false;
    CopyIn(ring_, written, message.data + sent_bytes_, bytes);
    sent_bytes_ += bytes;
    words_->written.store(written + Padded(bytes));
  }
  bell_->Ring();
  if (sent_bytes_ == message.bytes) {
    const uint64_t id = message.id;
    outgoing_.pop_front();
    header_sent_ = false;
    sent(id);
  }
  return true;
}

void MessageReceiver::Receive(const Place& place) { unasked_.push_back(place); }

bool MessageReceiver::Advance(const std::function<void(uint64_t id)>& received) {
  bool moved = Ask();
  while (Read(received)) moved = true;
  return moved;
}

bool MessageReceiver::Ask() {
  bool moved = false;
  uint64_t asked = words_->asked.load();
  for (; !unasked_.empty() && asked - words_->heard.load() < kMaxRequests; ++asked) {
    words_->requests[asked % kMaxRequests].tag = unasked_.front().tag;
    asked_.emplace(asked, unasked_.front());
    unasked_.pop_front();
    moved = true;
  }
  if (moved) {
    words_->asked.store(asked);
    bell_->Ring();
  }
  return moved;
}

bool MessageReceiver::Read(const std::function<void(uint64_t id)>& received) {
  const uint64_t read = words_->read.load();
  const size_t there = static_cast<size_t>(words_->written.load() - read);
  if (!incoming_) {
    if (there < sizeof(Header)) return false;
    Header header;
    CopyOut(ring_, read, &header, sizeof header);
    const auto place = asked_.find(header.request);
    if (place == asked_.end() || place->second.bytes != header.bytes) {
      throw std::runtime_error(
          "received a message of " + std::to_string(header.bytes) + " bytes, but " +
          (place == asked_.end() ? "no receive is pending for it"
                                 : std::to_string(place->second.bytes) + " bytes are expected"));
    }
    incoming_ = header.request;
    read_bytes_ = 0;
    words_->read.store(read + sizeof header);
  } else {
    const Place& place = asked_.at(*incoming_);
    const size_t left = place.bytes - read_bytes_;
    const size_t bytes = std::min({left, there, kMessagePartBytes});
    if (bytes == 0 && left > 0) return false;
    CopyOut(ring_, read, place.data + read_bytes_, bytes);
    read_bytes_ += bytes;
    words_->read.store(read + Padded(bytes));
  }
  bell_->Ring();
  if (const Place& place = asked_.at(*incoming_); read_bytes_ == place.bytes) {
    const uint64_t id = place.id;
    asked_.erase(*incoming_);
    incoming_.reset();
    received(id);
  }
  return true;
}

}  // namespace dslaunch
