// Mutual TLS 1.3 between two ends that know each other's public key, the pin. What carries the pins
// may show them to anyone, but must not change them: mpirun's, pdsh's and srun's command line
// carries one way, their output the other.
//
// Its pre-shared key (RFC 8446, section 2.2) comes from both keys (X25519), so each end proves that
// it holds its own. Certificates would say no more, and cost each node three times as much.
#pragma once

#include <openssl/evp.h>

#include <asio/ssl/context.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "net/openssl_ptr.h"
#include "net/tls_stream.h"

namespace dslaunch {

// A key pair of one end, made in memory.
struct PinnedKey {
  OpenSslPtr<EVP_PKEY, EVP_PKEY_free> key;
  std::string pin;  // the public key, 64 digits of lower-case hex
};
Result<PinnedKey> MakePinnedKey();

bool IsPin(std::string_view text);

// For a client: takes only the end whose pin is `expected`. For a server, empty: takes any, and the
// caller looks at PeerPin.
Result<asio::ssl::context> MakePinnedContext(const PinnedKey& own, const std::string& expected);

// After the handshake: of the key that the other end has proved to hold; empty: it has none.
std::string PeerPin(TlsStream& stream);

}  // namespace dslaunch
