// The seam between the front end and the ways to reach a node. A transport starts `dslaunch-agent`
// on a node and hands back a byte stream to it; everything above is the same for all transports.
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

// Ends a stream whose descriptor belongs to somebody else. Thread-safe.
class StreamHandle {
 public:
  StreamHandle() = default;
  static StreamHandle OfSameEnd(UniqueFd fd) {
    StreamHandle handle;
    handle.fd_ = fd.get();
    handle.own_ = std::move(fd);
    return handle;
  }
  // By the other end of its socket pair, which stays open as long as the handle is used.
  static StreamHandle OfOtherEnd(int fd) {
    StreamHandle handle;
    handle.fd_ = fd;
    handle.is_other_end_ = true;
    return handle;
  }

  // No more is sent; what was sent still arrives.
  void SendEnd() const { ::shutdown(fd_, is_other_end_ ? SHUT_RD : SHUT_WR); }
  void Shut() const { ::shutdown(fd_, SHUT_RDWR); }
  // Its other end is closed or shut.
  bool HasHungUp() const {
    pollfd ready = {.fd = fd_, .events = 0, .revents = 0};
    return ::poll(&ready, 1, /*timeout=*/0) > 0;
  }

 private:
  UniqueFd own_;
  int fd_ = -1;
  bool is_other_end_ = false;
};

struct HeldStream {
  UniqueFd fd;
  StreamHandle handle;
};

// A running supervisor on a node. Thread-safe but for TakeFd.
class NodeLink {
 public:
  // Aborts what still runs over it, unless it was left running.
  virtual ~NodeLink() = default;

  // The connected stream socket to the agent's gRPC server, just behind the hello line. Once.
  virtual UniqueFd TakeFd() = 0;

  // The same for who gives the descriptor away, and ends the stream nevertheless.
  virtual HeldStream TakeStream() {
    HeldStream stream;
    stream.fd = TakeFd();
    stream.handle = StreamHandle::OfSameEnd(DuplicateFd(stream.fd.get()));
    return stream;
  }

  // Shuts the stream at once, so that anything blocked on it returns. The supervisor sees end of
  // file and tears its node down. `why` is for the log.
  virtual void Abort(const std::string& why) = 0;

  // After the stream was closed: waits until the supervisor has ended. False when the deadline came
  // first.
  virtual bool WaitEnd(Deadline deadline) = 0;

  // The supervisor continues without this link: destroying the link ends nothing on the node.
  virtual void LeaveRunning() {}

  // What the user should know about the way to the node, a sentence without its end; empty:
  // nothing.
  virtual std::string Notice() const { return ""; }

  // The last 4 KiB of what the far side wrote to stderr, for error messages.
  virtual std::string StderrTail() const = 0;

  // The numeric address at which this node was reached.
  virtual std::string Address() const = 0;

  // The numeric address of this machine as that node reached it; empty: it did not.
  virtual std::string OwnAddress() const { return ""; }

  // The nonce that its supervisor was started with; empty: it is not known.
  virtual std::string StartNonce() const { return ""; }

  // The public key of a node that made its own (net/certificate_authority.h); empty: it needs one.
  virtual std::string PublicKey() const { return ""; }
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Reaches the node, starts its supervisor and agent, and checks their hello line. Blocks until
  // `deadline` at most; called from one thread per node at once. Errors name the node, the step
  // that failed and a hint.
  virtual Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target,
                                                    Deadline deadline) = 0;

  // How many calls of Connect get on at once: of more, the others would only wait, a thread each.
  virtual size_t ConnectsAtOnce() const { return std::numeric_limits<size_t>::max(); }
};

}  // namespace dslaunch
