#include "net/pre_shared_key.h"

#include "net/openssl_ptr.h"

namespace dslaunch {
namespace {

constexpr unsigned char kCipher[] = {0x13, 0x01};  // code of TLS_AES_128_GCM_SHA256

}  // namespace

SSL_SESSION* MakeKeySession(SSL* ssl, std::span<const unsigned char> key) {
  OpenSslPtr<SSL_SESSION, SSL_SESSION_free> session(SSL_SESSION_new());
  const bool ok = session &&
                  SSL_SESSION_set1_master_key(session.get(), key.data(), key.size()) == 1 &&
                  SSL_SESSION_set_cipher(session.get(), SSL_CIPHER_find(ssl, kCipher)) == 1 &&
                  SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1;
  return ok ? session.release() : nullptr;
}

void SetKeyCipher(SSL_CTX* context) { SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256"); }

}  // namespace dslaunch
