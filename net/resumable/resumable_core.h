// Implements one end of a bidirectional byte stream that outlives its connections. Uses no clock,
// threads or I/O; ResumableStream adds the I/O.
//
// Bytes are numbered from the beginning of the stream. Each end keeps what it has sent until the
// other end reports it as delivered, and sends again, on the next connection, what the other end
// has not received. A window bounds the bytes that are sent and not yet delivered. Each end can
// therefore always receive, even if its own reader is slow, and neither direction blocks the other.
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
  // Limit of the bytes that are sent and not yet delivered, in each direction.
  static constexpr size_t kWindow = size_t{4} << 20;
  static constexpr size_t kMostInFrame = size_t{64} << 10;  // limit of a frame's content, in bytes

  // --- Bytes to the peer ---

  // Returns the number of bytes that Send() accepts now.
  size_t Room() const {
    return end_sent_ ? 0 : static_cast<size_t>(peer_delivered_ + kWindow - sent_);
  }

  // Queues bytes for the peer. Precondition: `bytes` has at most Room() bytes.
  void Send(std::string_view bytes);

  // Queues the end of this end's bytes. Repeated calls do nothing.
  void SendEnd();

  // Returns the total size of the pending frames, in bytes.
  size_t frame_bytes() const { return frames_.size(); }

  // Removes and returns the pending frames, in order. The caller writes them to the connection.
  std::string TakeFrames() { return std::exchange(frames_, {}); }

  // --- Bytes from the peer ---

  // Processes bytes from the connection, which may be split anywhere. Fails if the peer violated
  // the protocol; the error describes the violation as part of a sentence. The caller must then
  // ignore all later bytes of the peer.
  Result<void> OnBytes(std::string_view bytes);
  // Removes and returns the bytes for the local reader.
  std::string TakeArrived() { return std::exchange(arrived_, {}); }
  // Records that the local reader has received `bytes` more bytes.
  void OnDelivered(size_t bytes);
  // Returns whether the peer has ended its direction, so that no bytes follow the bytes that have
  // arrived.
  bool peer_ended() const { return peer_ended_; }

  // --- Changes of the connection ---

  // Returns the number of the peer's bytes that this end has received.
  uint64_t received() const { return received_; }

  // Returns whether this end can resume at a peer that has received its first `peer_received`
  // bytes: this end has sent that many bytes and still keeps all later bytes.
  bool CanResumeAt(uint64_t peer_received) const {
    return peer_received >= kept_from_ && peer_received <= sent_;
  }
  // Continues on a new connection and discards incomplete frames of the old connection.
  // Precondition: CanResumeAt(peer_received).
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
  uint64_t kept_from_ = 0;  // number of this end's bytes before kept_
  std::string kept_;        // this end's bytes from kept_from_ to sent_
  bool end_sent_ = false;
  std::string frames_;

  // Numbers of the peer's bytes, counted from the beginning of the stream.
  uint64_t received_ = 0;
  uint64_t delivered_ = 0;
  uint64_t acknowledged_ = 0;
  std::string arrived_;
  bool peer_ended_ = false;
  std::string partial_;  // incomplete frame of the current connection
};

}  // namespace dslaunch
