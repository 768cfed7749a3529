// The pre-shared keys of TLS 1.3 (RFC 8446, section 2.2), by which both ends prove that they know a
// secret.
#pragma once

#include <openssl/ssl.h>

#include <span>

namespace dslaunch {

// What a callback of OpenSSL's for such keys returns: the caller's; null when there is no memory.
SSL_SESSION* MakeKeySession(SSL* ssl, std::span<const unsigned char> key);

// Sets the one cipher suite that these sessions are of.
void SetKeyCipher(SSL_CTX* context);

}  // namespace dslaunch
