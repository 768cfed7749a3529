#include "net/token_tls.h"

#include <openssl/err.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/os/socket_pair.h"
#include "net/pre_shared_key.h"
#include "net/tls_relay.h"

namespace dslaunch {
namespace {

using asio::ip::tcp;

constexpr std::string_view kIdentity = "dslaunch";
// Label that separates keys for this protocol from other uses of the token.
constexpr std::string_view kKeyLabel = "dslaunch per-node token\n";

using TokenKey = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

TokenKey KeyOf(const std::string& token) {
  TokenKey key;
  const std::string text = std::string(kKeyLabel) + token;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), key.data());
  return key;
}

// Returns the index under which a TLS context stores its key. Asio uses the context's application
// data, so an index of its own is needed.
int KeyIndex() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

// Returns a session for OpenSSL with the context's key, which the caller owns; nullptr if out of
// memory.
SSL_SESSION* MakeSession(SSL* ssl) {
  const auto* key =
      static_cast<const TokenKey*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), KeyIndex()));
  return MakeKeySession(ssl, *key);
}

int OfferKey(SSL* ssl, const EVP_MD*, const unsigned char** identity, size_t* identity_size,
             SSL_SESSION** session) {
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *identity_size = kIdentity.size();
  *session = MakeSession(ssl);
  return *session != nullptr;
}

int FindKey(SSL* ssl, const unsigned char* identity, size_t identity_size, SSL_SESSION** session) {
  const std::string_view name(reinterpret_cast<const char*>(identity), identity_size);
  *session = name == kIdentity ? MakeSession(ssl) : nullptr;
  return 1;
}

// Returns the fault of the peer's token that explains a failed handshake; nullptr if the token does
// not explain the failure.
const char* DescribeTokenFailure(const std::error_code& error) {
  if (error.category() != asio::error::get_ssl_category()) return nullptr;
  switch (ERR_GET_REASON(static_cast<unsigned long>(error.value()))) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
      return "it has another token";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return "it has no token";
    default:
      return nullptr;
  }
}

}  // namespace

class TokenTls::Loop {
 public:
  explicit Loop(const std::string& token) : key_(KeyOf(token)) {
    SetTlsRules(tls_);
    SSL_CTX* const native = tls_.native_handle();
    SetKeyCipher(native);
    SSL_CTX_set_ex_data(native, KeyIndex(), &key_);
    SSL_CTX_set_psk_use_session_callback(native, OfferKey);
    SSL_CTX_set_psk_find_session_callback(native, FindKey);
    thread_ = std::thread([this] { context_.run(); });
  }

  ~Loop() {
    context_.stop();
    thread_.join();
    OPENSSL_cleanse(key_.data(), key_.size());
  }

  uint64_t Wrap(Role role, UniqueFd tcp, milliseconds limit, OnDone on_done) {
    const uint64_t number = ++last_number_;
    auto fd = std::make_shared<UniqueFd>(std::move(tcp));
    asio::post(context_, [this, number, role, fd, limit, on_done = std::move(on_done)] {
      Begin(number, role, std::move(*fd), limit, on_done);
    });
    return number;
  }

  void Cancel(uint64_t number) {
    asio::post(context_, [this, number] { Fail(number, "it was not needed any longer"); });
  }

  bool Flush(Deadline deadline) {
    const MutexLock lock(mutex_);
    return changed_.WaitUntil(mutex_, deadline.when(),
                              [this]() DSL_REQUIRES(mutex_) { return num_relays_ == 0; });
  }

 private:
  struct Handshake {
    std::shared_ptr<TlsStream> stream;
    OnDone on_done;
  };

  void Begin(uint64_t number, Role role, UniqueFd tcp, milliseconds limit, const OnDone& on_done) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    getsockname(tcp.get(), reinterpret_cast<sockaddr*>(&address), &size);
    tcp::socket socket(context_, address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(),
                       tcp.Release());
    std::shared_ptr<TlsStream> stream = BeginHandshake(
        std::move(socket), tls_,
        role == Role::kServer ? asio::ssl::stream_base::server : asio::ssl::stream_base::client,
        limit, [this, number](std::error_code failed) { OnHandshake(number, failed); });
    handshakes_.emplace(number, Handshake{std::move(stream), on_done});
  }

  void OnHandshake(uint64_t number, std::error_code failed) {
    const auto known = handshakes_.find(number);
    if (known == handshakes_.end()) return;
    const std::shared_ptr<TlsStream> stream = known->second.stream;
    if (failed) {
      const char* const token = DescribeTokenFailure(failed);
      if (token != nullptr) return Fail(number, token, ExitCode::kNoPermission);
      return Fail(number, WhyNoHandshake(*stream, failed));
    }
    // TLS would also accept a server that has a certificate instead of the token, so the use of the
    // token is checked.
    if (SSL_session_reused(stream->ssl()) != 1)
      return Fail(number, "it has no token", ExitCode::kNoPermission);
    Result<SocketPair> pair = MakeSocketPair();
    if (!pair.ok()) return Fail(number, pair.error().message);
    CountRelays(1);
    std::make_shared<TlsRelay>(stream, std::move(pair->ours), [this] { CountRelays(-1); })->Start();
    Remove(number)(std::move(pair->theirs));
  }

  // Removes a pending handshake and returns its callback.
  OnDone Remove(uint64_t number) {
    const auto known = handshakes_.find(number);
    OnDone on_done = std::move(known->second.on_done);
    handshakes_.erase(known);
    return on_done;
  }

  void Fail(uint64_t number, const std::string& why, ExitCode code = ExitCode::kUnavailable) {
    const auto known = handshakes_.find(number);
    if (known == handshakes_.end()) return;
    std::error_code ignored;  // ignored, because the handshake is dropped even if close() fails
    known->second.stream->socket().close(ignored);
    Remove(number)(Error{code, why});
  }

  void CountRelays(int change) {
    const MutexLock lock(mutex_);
    num_relays_ += change;
    changed_.NotifyAll();
  }

  TokenKey key_;
  asio::ssl::context tls_{asio::ssl::context::tls};
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
  std::atomic<uint64_t> last_number_ = 0;
  std::map<uint64_t, Handshake> handshakes_;
  Mutex mutex_;
  CondVar changed_;
  int num_relays_ DSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

TokenTls::TokenTls(const std::string& token) : loop_(std::make_unique<Loop>(token)) {}
TokenTls::~TokenTls() = default;
uint64_t TokenTls::Wrap(Role role, UniqueFd tcp, milliseconds limit, OnDone on_done) {
  return loop_->Wrap(role, std::move(tcp), limit, std::move(on_done));
}
void TokenTls::Cancel(uint64_t number) { loop_->Cancel(number); }
bool TokenTls::Flush(Deadline deadline) { return loop_->Flush(deadline); }

}  // namespace dslaunch
