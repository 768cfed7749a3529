// One end of a byte stream in both directions that outlives its connections. Pure: no clock, no
// threads, no I/O; ResumableStream is its edge.
//
// Bytes are numbered from the beginning of the stream. Each end keeps what it has sent until the
// other end says that it is delivered, and sends on the next connection what the other end has not
// received. What is sent and not delivered yet is bounded by a window, so each end can always
// receive, however slow its own reader is, and no direction holds up the other.
//
// A frame is its kind (1 byte), the size of its content (4 bytes, big-endian) and the content:
//   D  bytes of the stream
//   A  how many of the other end's bytes are delivered (8 bytes, big-endian)
//   E  this end sends no more bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace dslaunch {

class ResumableCore {
 public:
  static constexpr size_t kWindow = size_t{4} << 20;  // bytes sent and not delivered, at most
  static constexpr size_t kMostInFrame = size_t{64} << 10;

  // --- what this end sends ---

  // How many bytes Send takes now.
  size_t Room() const {
    return end_sent_ ? 0 : static_cast<size_t>(peer_delivered_ + kWindow - sent_);
  }
  void Send(std::string_view bytes);
  void SendEnd();
  // For the connection, in order.
  size_t frame_bytes() const { return frames_.size(); }
  std::string TakeFrames() { return std::exchange(frames_, {}); }

  // --- what arrives ---

  // From the connection, cut anywhere. An error, a fragment of a sentence, means that the other end
  // breaks the rules: nothing that it sends counts any more.
  Result<void> OnBytes(std::string_view bytes);
  // For the reader at this end.
  std::string TakeArrived() { return std::exchange(arrived_, {}); }
  // The reader has got so many bytes more.
  void OnDelivered(size_t bytes);
  // No bytes follow those that have arrived.
  bool peer_ended() const { return peer_ended_; }

  // --- connections ---

  // How many of the other end's bytes this end has.
  uint64_t received() const { return received_; }
  // The other end may have that many of this end's bytes, and this end can send the others again.
  bool CanResumeAt(uint64_t peer_received) const {
    return peer_received >= kept_from_ && peer_received <= sent_;
  }
  // A connection takes the place of the one before; what that had begun does not count. Only where
  // CanResumeAt.
  void ResumeAt(uint64_t peer_received);

 private:
  Result<void> OnFrame(char kind, std::string_view content);
  void AddFrame(char kind, std::string_view content);
  void AddData(std::string_view bytes);
  void Acknowledge();
  void ForgetUpTo(uint64_t number);

  // Of this end's bytes, counted from the stream's beginning.
  uint64_t sent_ = 0;
  uint64_t peer_delivered_ = 0;
  uint64_t kept_from_ = 0;  // the number of kept_'s first byte
  std::string kept_;        // up to sent_
  bool end_sent_ = false;
  std::string frames_;

  // Of the other end's bytes.
  uint64_t received_ = 0;
  uint64_t delivered_ = 0;
  uint64_t acknowledged_ = 0;
  std::string arrived_;
  bool peer_ended_ = false;
  std::string partial_;  // a frame of which the rest has not come
};

}  // namespace dslaunch
