#include "net/pinned_tls.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>

#include <array>
#include <memory>
#include <optional>

#include "base/text/hex.h"
#include "net/pre_shared_key.h"
#include "net/tls.h"

namespace dslaunch {
namespace {

using KeyPtr = OpenSslPtr<EVP_PKEY, EVP_PKEY_free>;
using Secret = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

constexpr size_t kKeyBytes = 32;  // size of a public or private X25519 key
// Label that separates secrets for this protocol from other uses of the same keys.
constexpr std::string_view kLabel = "dslaunch pinned key";

// The data attached to a TLS context: its own key, and the pin that it expects of a peer.
struct Ends {
  PinnedKey own;
  std::string expected;
};

int EndsIndex() {
  static const int index = SSL_CTX_get_ex_new_index(
      0, nullptr, nullptr, nullptr, [](void*, void* ends, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<Ends*>(ends);
      });
  return index;
}

// Returns the index under which a connection stores its peer's pin, from whose key the pre-shared
// key was derived.
int PeerIndex() {
  static const int index = SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr, [](void*, void* pin, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<std::string*>(pin);
      });
  return index;
}

// Returns the secret that is derived from two keys (one-step derivation of NIST SP 800-56C). Only a
// holder of one of the private keys can compute it. Returns nullopt if `peer` is not a valid key.
std::optional<Secret> SecretOf(const PinnedKey& own, const std::string& peer, bool is_client) {
  std::array<unsigned char, kKeyBytes> raw;
  size_t size = 0;
  if (OPENSSL_hexstr2buf_ex(raw.data(), raw.size(), &size, peer.c_str(), '\0') != 1)
    return std::nullopt;
  const KeyPtr public_key(EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, raw.data(), size));
  const OpenSslPtr<EVP_PKEY_CTX, EVP_PKEY_CTX_free> exchange(
      EVP_PKEY_CTX_new(own.key.get(), nullptr));
  std::array<unsigned char, kKeyBytes> shared;
  size = shared.size();
  if (!public_key || !exchange || EVP_PKEY_derive_init(exchange.get()) != 1 ||
      EVP_PKEY_derive_set_peer(exchange.get(), public_key.get()) != 1 ||
      EVP_PKEY_derive(exchange.get(), shared.data(), &size) != 1) {
    return std::nullopt;
  }
  std::string input("\0\0\0\1", 4);
  input.append(reinterpret_cast<const char*>(shared.data()), size);
  input.append(kLabel).append(is_client ? own.pin : peer).append(is_client ? peer : own.pin);
  Secret secret;
  SHA256(reinterpret_cast<const unsigned char*>(input.data()), input.size(), secret.data());
  OPENSSL_cleanse(shared.data(), shared.size());
  OPENSSL_cleanse(input.data(), input.size());
  return secret;
}

const Ends& EndsOf(SSL* ssl) {
  return *static_cast<const Ends*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), EndsIndex()));
}

// Returns a session with the pre-shared key of both ends, which the caller owns; nullptr on
// failure.
SSL_SESSION* PinnedSession(SSL* ssl, const std::string& peer, bool is_client) {
  std::optional<Secret> secret = SecretOf(EndsOf(ssl).own, peer, is_client);
  if (!secret) return nullptr;
  SSL_SESSION* const session = MakeKeySession(ssl, *secret);
  OPENSSL_cleanse(secret->data(), secret->size());
  if (session == nullptr) return nullptr;
  delete static_cast<std::string*>(SSL_get_ex_data(ssl, PeerIndex()));
  SSL_set_ex_data(ssl, PeerIndex(), new std::string(peer));
  return session;
}

int OfferPinned(SSL* ssl, const EVP_MD*, const unsigned char** identity, size_t* size,
                SSL_SESSION** session) {
  const Ends& ends = EndsOf(ssl);
  *identity = reinterpret_cast<const unsigned char*>(ends.own.pin.data());
  *size = ends.own.pin.size();
  *session = PinnedSession(ssl, ends.expected, /*is_client=*/true);
  return *session != nullptr;
}

int FindPinned(SSL* ssl, const unsigned char* identity, size_t size, SSL_SESSION** session) {
  const std::string pin(reinterpret_cast<const char*>(identity), size);
  *session = IsPin(pin) ? PinnedSession(ssl, pin, /*is_client=*/false) : nullptr;
  return 1;
}

}  // namespace

bool IsPin(std::string_view text) { return text.size() == 2 * kKeyBytes && IsHex(text); }

Result<PinnedKey> MakePinnedKey() {
  PinnedKey made;
  made.key.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"));
  std::array<unsigned char, kKeyBytes> raw;
  size_t size = raw.size();
  if (!made.key || EVP_PKEY_get_raw_public_key(made.key.get(), raw.data(), &size) != 1)
    return Error{ExitCode::kInternal, "cannot create the key for connections to the nodes"};
  made.pin = ToHex({reinterpret_cast<const char*>(raw.data()), size});
  return made;
}

Result<asio::ssl::context> MakePinnedContext(const PinnedKey& own, const std::string& expected) {
  asio::ssl::context context(asio::ssl::context::tls);
  SetTlsRules(context);
  SSL_CTX* const native = context.native_handle();
  if (expected.empty()) {
    SSL_CTX_set_psk_find_session_callback(native, FindPinned);
  } else {
    SSL_CTX_set_psk_use_session_callback(native, OfferPinned);
    SSL_CTX_set_verify(native, SSL_VERIFY_PEER, nullptr);  // refuses a peer with a certificate
  }
  EVP_PKEY_up_ref(own.key.get());
  auto ends = std::make_unique<Ends>(Ends{{KeyPtr(own.key.get()), own.pin}, expected});
  SetKeyCipher(native);
  if (SSL_CTX_set_ex_data(native, EndsIndex(), ends.get()) != 1)
    return Error{ExitCode::kInternal, "cannot use the key for connections to the nodes"};
  (void)ends.release();  // the ends now belong to the context
  return context;
}

std::string PeerPin(TlsStream& stream) {
  const auto* pin = static_cast<const std::string*>(SSL_get_ex_data(stream.ssl(), PeerIndex()));
  return pin != nullptr && SSL_session_reused(stream.ssl()) == 1 ? *pin : "";
}

}  // namespace dslaunch
