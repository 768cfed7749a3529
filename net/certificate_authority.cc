#include "net/certificate_authority.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <utility>

#include "net/node_host_name.h"
#include "net/openssl_ptr.h"

namespace dslaunch {
namespace {

using Key = OpenSslPtr<EVP_PKEY, EVP_PKEY_free>;
using Certificate = OpenSslPtr<X509, X509_free>;
using Extension = OpenSslPtr<X509_EXTENSION, X509_EXTENSION_free>;
using Bio = OpenSslPtr<BIO, BIO_free>;

constexpr std::chrono::seconds kClockSlack = std::chrono::hours(24);

Error OpenSslError(const char* step) {
  char text[256] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  return Error{ExitCode::kInternal,
               std::string("cannot make the job's certificates (") + step + "): " + text};
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// A certificate for `key` with random serial number and the given subject, not yet signed.
Certificate NewCertificate(EVP_PKEY* key, const std::string& common_name,
                           std::chrono::seconds valid_for) {
  Certificate certificate(X509_new());
  uint64_t serial = 0;
  if (!certificate || RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) != 1)
    return nullptr;
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const bool ok =
      X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
      ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial >> 1) == 1 &&
      X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kClockSlack.count()) != nullptr &&
      X509_gmtime_adj(X509_getm_notAfter(certificate.get()), valid_for.count()) != nullptr &&
      X509_set_pubkey(certificate.get(), key) == 1 &&
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(common_name.c_str()), -1,
                                 -1, 0) == 1;
  return ok ? std::move(certificate) : nullptr;
}

std::string TakePem(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : std::string();
}

std::string ToPem(X509* certificate) {
  Bio bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_X509(bio.get(), certificate) != 1) return "";
  return TakePem(bio);
}

std::string ToPem(EVP_PKEY* key) {
  Bio bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return "";
  return TakePem(bio);
}

}  // namespace

struct CertificateAuthority::State {
  std::string job_id;
  Key key;
  Certificate certificate;
  std::string certificate_pem;
};

CertificateAuthority::CertificateAuthority(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
CertificateAuthority::CertificateAuthority(CertificateAuthority&&) noexcept = default;
CertificateAuthority::~CertificateAuthority() = default;

Result<CertificateAuthority> CertificateAuthority::Create(const std::string& job_id) {
  auto state = std::make_unique<State>();
  state->job_id = job_id;
  state->key.reset(EVP_EC_gen("P-256"));
  if (!state->key) return OpenSslError("key");
  state->certificate =
      NewCertificate(state->key.get(), "dslaunch job authority", kCertificatesAreValidFor);
  X509* certificate = state->certificate.get();
  if (certificate == nullptr ||
      X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) != 1 ||
      !AddExtension(certificate, certificate, NID_basic_constraints,
                    "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(certificate, certificate, NID_key_usage, "critical,keyCertSign") ||
      X509_sign(certificate, state->key.get(), EVP_sha256()) == 0) {
    return OpenSslError("authority");
  }
  state->certificate_pem = ToPem(certificate);
  return CertificateAuthority(std::move(state));
}

Result<pb::Credentials> CertificateAuthority::Issue(uint32_t node_index,
                                                    const std::string& node_name,
                                                    std::chrono::seconds valid_for) {
  Key key(EVP_EC_gen("P-256"));
  if (!key) return OpenSslError("key");
  // X.509 allows 64 characters here; the name is for people, the checks use the alternative name.
  Certificate certificate = NewCertificate(key.get(), node_name.substr(0, 64), valid_for);
  if (!certificate ||
      X509_set_issuer_name(certificate.get(), X509_get_subject_name(state_->certificate.get())) !=
          1 ||
      !AddExtension(certificate.get(), state_->certificate.get(), NID_subject_alt_name,
                    "DNS:" + HostNameOfNode(node_index, state_->job_id)) ||
      !AddExtension(certificate.get(), state_->certificate.get(), NID_ext_key_usage,
                    "serverAuth,clientAuth") ||
      X509_sign(certificate.get(), state_->key.get(), EVP_sha256()) == 0) {
    return OpenSslError("certificate");
  }
  pb::Credentials credentials;
  credentials.set_ca_cert(state_->certificate_pem);
  credentials.set_cert(ToPem(certificate.get()));
  credentials.set_private_key(ToPem(key.get()));
  return credentials;
}

}  // namespace dslaunch
