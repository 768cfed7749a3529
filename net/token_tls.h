// TLS 1.3 between commands that were given the same secret, a token, and have no certificates: its
// pre-shared keys (RFC 8446, section 2.2), with which both ends prove that they know the token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Puts TLS around TCP connections, on a thread of its own. Thread-safe.
class TokenTls {
 public:
  enum class Role { kClient, kServer };

  // On the thread of TokenTls, once: the connection's decrypted end, or what was wrong with the
  // other end, as "it does not speak TLS"; kNoPermission when it has another token, or none.
  using OnDone = std::function<void(Result<UniqueFd> plain)>;

  // The key is derived from `token` (SHA-256), which should be random.
  explicit TokenTls(const std::string& token);
  // Ends all connections.
  ~TokenTls();

  // `tcp` is a connected socket. The number is for Cancel.
  uint64_t Wrap(Role role, UniqueFd tcp, milliseconds limit, OnDone on_done);
  // Ends a handshake that is not over; void later.
  void Cancel(uint64_t number);

  // Blocks until what was written to decrypted ends that are closed by now is on its way; false
  // when the deadline comes first.
  bool Flush(Deadline deadline);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
