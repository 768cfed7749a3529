// One end of a bidirectional byte stream that outlives its connections. Pure: no clock, threads or
// I/O; ResumableStream is its edge.
//
// Bytes are numbered from the beginning of the stream. Each end keeps what it has sent until the
// other end reports it as delivered, and sends again, on the next connection, what the other end
// has not received. A window bounds the bytes that are sent and not yet delivered, so each end can
// always receive, even if its own reader is slow, and neither direction blocks the other.
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
  static constexpr size_t kWindow = size_t{4} << 20;  // limit of bytes sent and not yet delivered
  static constexpr size_t kMostInFrame = size_t{64} << 10;

  // --- what this end sends ---

  // Returns how many bytes Send() accepts now.
  size_t Room() const {
    return end_sent_ ? 0 : static_cast<size_t>(peer_delivered_ + kWindow - sent_);
  }
  void Send(std::string_view bytes);
  void SendEnd();
  // Frames to write to the connection, in order.
  size_t frame_bytes() const { return frames_.size(); }
  std::string TakeFrames() { return std::exchange(frames_, {}); }

  // --- what arrives ---

  // Processes bytes from the connection, which may be split anywhere. An error (its message is a
  // fragment of a sentence) means that the peer violated the protocol; ignore all that it sends
  // later.
  Result<void> OnBytes(std::string_view bytes);
  // Returns and removes the bytes for the local reader.
  std::string TakeArrived() { return std::exchange(arrived_, {}); }
  // Reports that the local reader has received `bytes` more bytes.
  void OnDelivered(size_t bytes);
  // Returns whether the peer has ended its direction, so that no bytes follow those already
  // arrived.
  bool peer_ended() const { return peer_ended_; }

  // --- connections ---

  // Returns how many of the peer's bytes this end has received.
  uint64_t received() const { return received_; }
  // Returns whether the peer can have received exactly that many of this end's bytes and this end
  // still keeps the rest.
  bool CanResumeAt(uint64_t peer_received) const {
    return peer_received >= kept_from_ && peer_received <= sent_;
  }
  // Continues on a new connection and discards partial frames of the old one. Precondition:
  // CanResumeAt(peer_received).
  void ResumeAt(uint64_t peer_received);

 private:
  Result<void> OnFrame(char kind, std::string_view content);
  void AddFrame(char kind, std::string_view content);
  void AddData(std::string_view bytes);
  void Acknowledge();
  void ForgetUpTo(uint64_t number);

  // Numbers of this end's bytes, counted from the beginning of the stream.
  uint64_t sent_ = 0;
  uint64_t peer_delivered_ = 0;
  uint64_t kept_from_ = 0;  // number of the first byte of kept_
  std::string kept_;        // bytes from kept_from_ to sent_
  bool end_sent_ = false;
  std::string frames_;

  // Numbers of the peer's bytes.
  uint64_t received_ = 0;
  uint64_t delivered_ = 0;
  uint64_t acknowledged_ = 0;
  std::string arrived_;
  bool peer_ended_ = false;
  std::string partial_;  // the beginning of an incomplete frame
};

}  // namespace dslaunch
