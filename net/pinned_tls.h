// Implements mutual TLS 1.3 between two ends that know each other's public key, called the pin. The
// channel that carries the pins may be public, but must protect them from changes. The command
// lines of mpirun, pdsh and srun carry one pin, and the output of these programs carries the other.
//
// The pre-shared key (RFC 8446, section 2.2) is derived from the keys of both ends (X25519), so
// each end proves that it holds its own private key. Certificates would prove no more, and would
// take each node three times as long.
#pragma once

#include <openssl/evp.h>

#include <asio/ssl/context.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "net/openssl_ptr.h"
#include "net/tls_stream.h"

namespace dslaunch {

// The key pair of one end, created in memory.
struct PinnedKey {
  OpenSslPtr<EVP_PKEY, EVP_PKEY_free> key;
  std::string pin;  // public key as 64 lower-case hexadecimal digits
};

// Returns a new key pair. Fails with kInternal if OpenSSL fails.
Result<PinnedKey> MakePinnedKey();

// Returns whether the text has the form of a pin: 64 lower-case hexadecimal digits.
bool IsPin(std::string_view text);

// Returns a TLS context for one end. A client passes as `expected` the pin of the only peer that it
// accepts. A server passes an empty text: it accepts any peer, and the caller checks PeerPin().
// Fails with kInternal if OpenSSL fails.
Result<asio::ssl::context> MakePinnedContext(const PinnedKey& own, const std::string& expected);

// Returns the pin of the key that the peer has proved to hold; empty if the peer has proved none.
// Precondition: the handshake is complete.
std::string PeerPin(TlsStream& stream);

}  // namespace dslaunch
