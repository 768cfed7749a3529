#include "net/pinned_tls.h"

#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/digest/sha256.h"
#include "base/hex.h"
#include "net/tls.h"

namespace dslaunch {
namespace {

using Certificate = OpenSslPtr<X509, X509_free>;

std::string PinOf(X509* certificate) {
  unsigned char* der = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der);
  if (size <= 0) return "";
  std::string pin =
      ToHex(Sha256Of({reinterpret_cast<const char*>(der), static_cast<size_t>(size)}));
  OPENSSL_free(der);
  return pin;
}

void FreeExpected(void*, void* expected, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<std::string*>(expected);
}

// Where a context has the pin that it takes.
int ExpectedIndex() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeExpected);
  return index;
}

// In place of all that OpenSSL would check: who signed a certificate says nothing here.
int VerifyPin(X509_STORE_CTX* store, void*) {
  auto* ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto* expected =
      static_cast<std::string*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), ExpectedIndex()));
  X509* const certificate = X509_STORE_CTX_get0_cert(store);
  const std::string pin = certificate != nullptr ? PinOf(certificate) : "";
  if (IsPin(pin) && (expected->empty() || pin == *expected)) {
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
  }
  X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
  return 0;
}

}  // namespace

bool IsPin(std::string_view text) { return text.size() == 2 * SHA256_DIGEST_LENGTH && IsHex(text); }

Result<PinnedKey> MakePinnedKey() {
  PinnedKey key;
  DSL_TRY_ASSIGN(static_cast<SelfSigned&>(key), MakeSelfSigned("dslaunch"));
  key.pin = PinOf(key.certificate.get());
  if (!IsPin(key.pin))
    return Error{ExitCode::kInternal, "cannot make a key for the way to the nodes"};
  return key;
}

Result<asio::ssl::context> MakePinnedContext(const PinnedKey& own, const std::string& expected) {
  asio::ssl::context context(asio::ssl::context::tls);
  SetTlsRules(context);
  SSL_CTX* const native = context.native_handle();
  SSL_CTX_set_ex_data(native, ExpectedIndex(), new std::string(expected));
  SSL_CTX_set_verify(native, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_cert_verify_callback(native, VerifyPin, nullptr);
  if (SSL_CTX_use_certificate(native, own.certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(native, own.key.get()) != 1) {
    return Error{ExitCode::kInternal, "cannot use the key for the way to the nodes"};
  }
  return context;
}

std::string PeerPin(TlsStream& stream) {
  const Certificate certificate(SSL_get1_peer_certificate(stream.ssl()));
  return certificate ? PinOf(certificate.get()) : "";
}

}  // namespace dslaunch
