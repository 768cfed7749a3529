// Defines the interface between the front end and the ways to reach a node. A transport starts
// `dslaunch-agent` on a node and returns a byte stream to it. All other code of the front end is
// the same for all transports.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "hostfiles/node_target.h"

namespace dslaunch {

// Shuts down a stream whose descriptor belongs to another object. Thread-safe.
class StreamHandle {
 public:
  StreamHandle() = default;

  // Returns a handle that owns `fd`, a duplicate of the stream's descriptor.
  static StreamHandle OfSameEnd(UniqueFd fd) {
    StreamHandle handle;
    handle.fd_ = fd.get();
    handle.own_ = std::move(fd);
    return handle;
  }
  // Returns a handle that uses `fd`, the other end of the socket pair, which must stay open while
  // the handle is used.
  static StreamHandle OfOtherEnd(int fd) {
    StreamHandle handle;
    handle.fd_ = fd;
    handle.is_other_end_ = true;
    return handle;
  }

  // Ends the sending direction; bytes already sent still arrive.
  void SendEnd() const { ::shutdown(fd_, is_other_end_ ? SHUT_RD : SHUT_WR); }
  void Shut() const { ::shutdown(fd_, SHUT_RDWR); }
  // Returns whether the other end is closed or shut down.
  bool HasHungUp() const {
    pollfd ready = {.fd = fd_, .events = 0, .revents = 0};
    return ::poll(&ready, 1, /*timeout=*/0) > 0;
  }

 private:
  UniqueFd own_;
  int fd_ = -1;
  bool is_other_end_ = false;
};

// A stream's socket, and a handle that can end the stream without the socket.
struct HeldStream {
  UniqueFd fd;
  StreamHandle handle;
};

// A connection to a running supervisor on a node. Thread-safe except for TakeFd.
class NodeLink {
 public:
  // Ends the operations that use the link, unless LeaveRunning was called.
  virtual ~NodeLink() = default;

  // Returns the connected stream socket to the agent's gRPC server, positioned just after the hello
  // line. Call it once.
  virtual UniqueFd TakeFd() = 0;

  // Returns the socket like TakeFd, with a handle for a caller that passes the descriptor on but
  // must still be able to end the stream.
  virtual HeldStream TakeStream() {
    HeldStream stream;
    stream.fd = TakeFd();
    stream.handle = StreamHandle::OfSameEnd(DuplicateFd(stream.fd.get()));
    return stream;
  }

  // Shuts the stream down at once, so that operations blocked on it return. The supervisor reads
  // end of file and tears its node down. `why` is for the log.
  virtual void Abort(const std::string& why) = 0;

  // Waits until the supervisor has ended. Returns false if the deadline passed first. Precondition:
  // the stream is closed.
  virtual bool WaitEnd(Deadline deadline) = 0;

  // Makes the destructor end nothing on the node; the supervisor continues without the link.
  virtual void LeaveRunning() {}

  // Returns a notice for the user about how the node was reached: a sentence without its full stop,
  // or "" for no notice.
  virtual std::string Notice() const { return ""; }

  // Returns the last 4 KiB of the remote side's stderr, for error messages.
  virtual std::string StderrTail() const = 0;

  // Returns the numeric address at which the node was reached.
  virtual std::string Address() const = 0;

  // Returns this machine's numeric address as the node saw it; empty if the transport made no
  // connection that shows the address.
  virtual std::string OwnAddress() const { return ""; }

  // Returns the nonce with which the supervisor was started; empty if unknown.
  virtual std::string StartNonce() const { return ""; }

  // Returns the public key of a node that created its own key (net/certificate_authority.h); empty
  // if the node needs a key from the front end.
  virtual std::string PublicKey() const { return ""; }
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Reaches the node, starts its supervisor and agent, and checks their hello line. Blocks until
  // `deadline` at most. Called on several threads at once, once for each node. Errors name the node
  // and the failed step, and give a hint.
  virtual Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target,
                                                    Deadline deadline) = 0;

  // Returns the number of concurrent calls of Connect that make progress; each further call would
  // only block a thread.
  virtual size_t ConnectsAtOnce() const { return std::numeric_limits<size_t>::max(); }
};

}  // namespace dslaunch
