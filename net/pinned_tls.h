// Mutual TLS 1.3 between two ends that know each other's key by its digest, the pin. What
// carries the pins may show them to anyone, but must not change them: mpirun's, pdsh's and srun's
// command line carries one way, their output the other.
#pragma once

#include <asio/ssl/context.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "net/certificate_authority.h"
#include "net/tls_stream.h"

namespace dslaunch {

// A key pair of one end, made in memory.
struct PinnedKey : SelfSigned {
  std::string pin;  // SHA-256 of the public key, 64 digits of lower-case hex
};
Result<PinnedKey> MakePinnedKey();

bool IsPin(std::string_view text);

// For either end: takes only the other end's key that has the pin `expected`. Empty: any, and the
// caller looks at PeerPin.
Result<asio::ssl::context> MakePinnedContext(const PinnedKey& own, const std::string& expected);

// After the handshake: of the key that the other end has proved to hold; empty: it has none.
std::string PeerPin(TlsStream& stream);

}  // namespace dslaunch
