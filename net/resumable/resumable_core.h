// Implements one end of a bidirectional byte stream that outlives its connections. Pure: no clock,
// threads or I/O; ResumableStream adds the I/O.
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
  // Limit of bytes that are sent and not yet delivered.
  static constexpr size_t kWindow = size_t{4} << 20;
  static constexpr size_t kMostInFrame = size_t{64} << 10;

  // --- Sending ---

  // Returns the number of bytes that Send() accepts now.
  size_t Room() const {
    return end_sent_ ? 0 : static_cast<size_t>(peer_delivered_ + kWindow - sent_);
  }
  void Send(std::string_view bytes);
  void SendEnd();
  // These functions return the frames to write to the connection, in order, and their size.
  size_t frame_bytes() const { return frames_.size(); }
  std::string TakeFrames() { return std::exchange(frames_, {}); }

  // --- Receiving ---

  // Processes bytes from the connection, which may be split anywhere. Fails if the peer violated
  // the protocol; the message is a fragment of a sentence. Ignore all later bytes of the peer then.
  Result<void> OnBytes(std::string_view bytes);
  // Returns and removes the bytes for the local reader.
  std::string TakeArrived() { return std::exchange(arrived_, {}); }
  // Reports that the local reader has received `bytes` more bytes.
  void OnDelivered(size_t bytes);
  // Returns whether the peer has ended its direction, so that no bytes follow those that have
  // arrived.
  bool peer_ended() const { return peer_ended_; }

  // --- Connections ---

  // Returns the number of the peer's bytes that this end has received.
  uint64_t received() const { return received_; }
  // Returns whether the peer can have received exactly `peer_received` of this end's bytes and this
  // end still keeps the rest.
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

  // Counts of this end's bytes from the beginning of the stream.
  uint64_t sent_ = 0;
  uint64_t peer_delivered_ = 0;
  uint64_t kept_from_ = 0;  // number of the first byte of kept_
  std::string kept_;        // bytes from kept_from_ to sent_
  bool end_sent_ = false;
  std::string frames_;

  // Counts of the peer's bytes from the beginning of the stream.
  uint64_t received_ = 0;
  uint64_t delivered_ = 0;
  uint64_t acknowledged_ = 0;
  std::string arrived_;
  bool peer_ended_ = false;
  std::string partial_;  // beginning of an incomplete frame
};

}  // namespace dslaunch
