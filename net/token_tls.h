// Implements TLS 1.3 between commands that share a secret, called the token, and have no
// certificates. Both ends prove by pre-shared keys (RFC 8446, section 2.2) that they know the
// token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Adds TLS to TCP connections of commands that share a token. Runs on its own thread. Thread-safe.
class TokenTls {
 public:
  enum class Role { kClient, kServer };

  // Receives the decrypted end of the connection, or an error that describes the peer's fault, such
  // as "it does not speak TLS". The error is kNoPermission if the peer has another token or no
  // token. Called once, on the thread of TokenTls.
  using OnDone = std::function<void(Result<UniqueFd> plain)>;

  // Derives the key from `token` by SHA-256, so `token` should be random.
  explicit TokenTls(const std::string& token);
  // Closes all connections.
  ~TokenTls();

  // Starts a handshake on `tcp`, a connected socket, which fails after `limit`. Returns a number
  // for Cancel().
  uint64_t Wrap(Role role, UniqueFd tcp, milliseconds limit, OnDone on_done);
  // Cancels a pending handshake. Does nothing if the handshake has ended.
  void Cancel(uint64_t number);

  // Blocks until all data of the decrypted ends that the callers have closed is sent. Returns false
  // if the deadline passes first.
  bool Flush(Deadline deadline);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
