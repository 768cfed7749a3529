// TLS 1.3 between commands that share a secret, a token, and have no certificates. Both ends prove
// that they know the token by pre-shared keys (RFC 8446, section 2.2).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Adds TLS to TCP connections, on its own thread. Thread-safe.
class TokenTls {
 public:
  enum class Role { kClient, kServer };

  // Called once, on the thread of TokenTls, with the connection's decrypted end, or with what was
  // wrong with the peer, as in "it does not speak TLS"; kNoPermission if the peer has another token
  // or none.
  using OnDone = std::function<void(Result<UniqueFd> plain)>;

  // Derives the key from `token` (SHA-256), which should be random.
  explicit TokenTls(const std::string& token);
  // Closes all connections.
  ~TokenTls();

  // Starts a handshake. `tcp` is a connected socket. Returns a number for Cancel().
  uint64_t Wrap(Role role, UniqueFd tcp, milliseconds limit, OnDone on_done);
  // Ends a pending handshake. Does nothing after its end.
  void Cancel(uint64_t number);

  // Blocks until the data written to decrypted ends that are already closed has been sent. Returns
  // false at the deadline.
  bool Flush(Deadline deadline);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
