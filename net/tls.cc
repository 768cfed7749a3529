#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509v3.h>

#include <asio/buffer.hpp>
#include <asio/ssl/error.hpp>
#include <asio/steady_timer.hpp>
#include <string_view>
#include <utility>

#include "base/digest/sha256.h"
#include "base/mutex.h"
#include "net/node_host_name.h"
#include "net/openssl_ptr.h"

namespace dslaunch {
namespace {

std::string_view TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

bool IsTlsError(const std::error_code& error, int reason) {
  const auto value = static_cast<unsigned long>(error.value());
  return error.category() == asio::error::get_ssl_category() && ERR_GET_REASON(value) == reason;
}

OpenSslPtr<SSL_CTX, SSL_CTX_free> Shared(SSL_CTX* context) {
  SSL_CTX_up_ref(context);
  return OpenSslPtr<SSL_CTX, SSL_CTX_free>(context);
}

// Returns the private key in `pem`; nullptr if the text is not a valid EC key. OpenSSL's generic
// reader tries every decoder, which takes longer than a handshake, so it is not used.
OpenSslPtr<EVP_PKEY, EVP_PKEY_free> ReadEcKey(const std::string& pem) {
  const OpenSslPtr<BIO, BIO_free> text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  char* name = nullptr;
  char* header = nullptr;
  unsigned char* der = nullptr;
  long size = 0;
  OpenSslPtr<EVP_PKEY, EVP_PKEY_free> key;
  if (text && PEM_read_bio(text.get(), &name, &header, &der, &size) == 1) {
    const unsigned char* bytes = der;
    key.reset(d2i_PrivateKey(EVP_PKEY_EC, nullptr, &bytes, size));
    OPENSSL_clear_free(der, static_cast<size_t>(size));
  }
  OPENSSL_free(name);
  OPENSSL_free(header);
  return key;
}

Result<asio::ssl::context> NewTlsContext(const pb::Credentials& credentials) {
  asio::ssl::context context(asio::ssl::context::tls);
  SetTlsRules(context);
  std::error_code error;
  context.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, error);
  if (!error) context.add_certificate_authority(asio::buffer(credentials.ca_cert()), error);
  if (!error)
    context.use_certificate(asio::buffer(credentials.cert()), asio::ssl::context::pem, error);
  const auto key = ReadEcKey(credentials.private_key());
  if (!error && (!key || SSL_CTX_use_PrivateKey(context.native_handle(), key.get()) != 1))
    error = std::make_error_code(std::errc::bad_message);
  if (error) {
    return Error{ExitCode::kInternal,
                 "the certificates that the front end sent cannot be used: " + error.message()};
  }
  return context;
}

}  // namespace

void SetTlsRules(asio::ssl::context& context) {
  SSL_CTX* const native = context.native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(
      native, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_num_tickets(native, 0);  // no tickets, because sessions are not resumed
  // Both ends have the authority's certificate, so the chain is not sent. The peer would parse and
  // verify it again.
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
}

Result<asio::ssl::context> MakeTlsContext(const pb::Credentials& credentials) {
  // A cache of the newest TLS context. An agent uses its single certificate in up to three places,
  // which then share the context.
  struct Newest {
    Mutex mutex;
    // Digest of the newest credentials. The credentials contain a private key, so they are not
    // kept.
    std::string digest DSL_GUARDED_BY(mutex);
    OpenSslPtr<SSL_CTX, SSL_CTX_free> context DSL_GUARDED_BY(mutex);
  };
  static Newest* const newest = new Newest;
  std::string digest = Sha256Of(credentials.SerializeAsString());
  const MutexLock lock(newest->mutex);
  if (!newest->context || newest->digest != digest) {
    DSL_TRY_ASSIGN(asio::ssl::context context, NewTlsContext(credentials));
    newest->context = Shared(context.native_handle());
    newest->digest = std::move(digest);
  }
  return asio::ssl::context(Shared(newest->context.get()).release());
}

std::shared_ptr<TlsStream> BeginHandshake(asio::ip::tcp::socket socket, asio::ssl::context& context,
                                          TlsStream::Role role, milliseconds limit,
                                          std::function<void(std::error_code)> on_done) {
  struct Handshake {
    Handshake(asio::ip::tcp::socket socket, asio::ssl::context& context, milliseconds duration)
        : stream(std::move(socket), context), limit(stream.socket().get_executor(), duration) {}
    TlsStream stream;
    asio::steady_timer limit;
    bool is_over = false;
    bool is_late = false;
  };
  const auto handshake = std::make_shared<Handshake>(std::move(socket), context, limit);
  handshake->limit.async_wait([handshake](std::error_code cancelled) {
    if (cancelled || handshake->is_over) return;
    handshake->is_late = true;
    std::error_code ignored;
    handshake->stream.socket().close(ignored);
  });
  handshake->stream.Handshake(role,
                              [handshake, on_done = std::move(on_done)](std::error_code failed) {
                                handshake->is_over = true;
                                handshake->limit.cancel();
                                on_done(handshake->is_late ? asio::error::timed_out : failed);
                              });
  return {handshake, &handshake->stream};
}

std::optional<uint32_t> PeerNode(TlsStream& stream, const std::string& job_id) {
  const OpenSslPtr<X509, X509_free> certificate(SSL_get1_peer_certificate(stream.ssl()));
  if (!certificate) return std::nullopt;
  const OpenSslPtr<GENERAL_NAMES, GENERAL_NAMES_free> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS) continue;
    if (const auto node = NodeOfHostName(TextOf(name->d.dNSName), job_id)) return node;
  }
  return std::nullopt;
}

std::string WhyNoHandshake(TlsStream& stream, const std::error_code& error) {
  // If another authority signed the certificate, OpenSSL's first error is only that some arithmetic
  // failed, so the verification result is reported instead.
  const long verdict = SSL_get_verify_result(stream.ssl());
  if (verdict == X509_V_ERR_CERT_NOT_YET_VALID || verdict == X509_V_ERR_CERT_HAS_EXPIRED) {
    return std::string("by this machine's clock its ") + X509_verify_cert_error_string(verdict) +
           "; set the clocks of the nodes";
  }
  if (verdict != X509_V_OK) {
    return std::string("its certificate is not from this job (") +
           X509_verify_cert_error_string(verdict) + ")";
  }
  if (IsTlsError(error, SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)) return "it has no certificate";
  for (const int reason : {SSL_R_UNSUPPORTED_PROTOCOL, SSL_R_TLSV1_ALERT_PROTOCOL_VERSION}) {
    if (IsTlsError(error, reason)) return "it does not speak TLS 1.3";
  }
  for (const int reason :
       {SSL_R_WRONG_VERSION_NUMBER, SSL_R_HTTP_REQUEST, SSL_R_HTTPS_PROXY_REQUEST,
        SSL_R_PACKET_LENGTH_TOO_LONG, SSL_R_UNEXPECTED_MESSAGE}) {
    if (IsTlsError(error, reason)) return "it does not speak TLS";
  }
  if (error == asio::error::timed_out) return "it did not authenticate in time";
  if (error == asio::error::eof || error == asio::error::connection_reset ||
      error == asio::ssl::error::stream_truncated) {
    return "peer disconnected before authentication";
  }
  return "the TLS handshake failed (" + error.message() + ")";
}

}  // namespace dslaunch
