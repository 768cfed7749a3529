// Creates the pre-shared keys of TLS 1.3 (RFC 8446, section 2.2), by which the two ends prove that
// they know a secret.
#pragma once

#include <openssl/ssl.h>

#include <span>

namespace dslaunch {

// Returns a session that OpenSSL's callbacks for pre-shared keys can return. The caller owns the
// session. Returns nullptr if out of memory.
SSL_SESSION* MakeKeySession(SSL* ssl, std::span<const unsigned char> key);

// Sets the only cipher suite that sessions of MakeKeySession() use.
void SetKeyCipher(SSL_CTX* context);

}  // namespace dslaunch
