#include "net/certificate_authority.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <string_view>
#include <utility>

#include "net/node_host_name.h"
#include "net/openssl_ptr.h"

namespace dslaunch {
namespace {

using Key = OpenSslPtr<EVP_PKEY, EVP_PKEY_free>;
using Certificate = OpenSslPtr<X509, X509_free>;
using Extension = OpenSslPtr<X509_EXTENSION, X509_EXTENSION_free>;
using Bio = OpenSslPtr<BIO, BIO_free>;

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

// Returns an unsigned certificate for `key` with a random serial number and the given subject.
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
      // A node's clock may be days behind, so the certificate is valid from 1970.
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), 0) != nullptr &&
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

// The authority's key and certificate. Encoding and decoding them takes longer than creating them,
// so they are kept as OpenSSL's objects.
struct AuthorityKeys {
  Key key;
  Certificate certificate;
  std::string job_id;
  std::string certificate_pem;
};

Result<pb::Credentials> Sign(const AuthorityKeys& authority, uint32_t node_index, EVP_PKEY* key,
                             std::chrono::seconds valid_for) {
  const std::string name = HostNameOfNode(node_index, authority.job_id);
  const Certificate certificate =
      NewCertificate(key, "node " + std::to_string(node_index), valid_for);
  X509* const issuer = authority.certificate.get();
  if (!certificate || X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer)) != 1 ||
      !AddExtension(certificate.get(), issuer, NID_subject_alt_name, "DNS:" + name) ||
      !AddExtension(certificate.get(), issuer, NID_ext_key_usage, "serverAuth,clientAuth") ||
      X509_sign(certificate.get(), authority.key.get(), EVP_sha256()) == 0) {
    return OpenSslError("certificate");
  }
  pb::Credentials credentials;
  credentials.set_ca_cert(authority.certificate_pem);
  credentials.set_cert(ToPem(certificate.get()));
  return credentials;
}

// Returns the public key in `der`; nullptr if it is not a valid P-256 key.
Key ReadPublicKey(const std::string& der) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  const unsigned char* const end = bytes + der.size();
  Key key(d2i_PUBKEY(nullptr, &bytes, static_cast<long>(der.size())));
  char group[32] = "";
  const bool is_ours = key && bytes == end &&
                       EVP_PKEY_get_group_name(key.get(), group, sizeof group, nullptr) == 1 &&
                       std::string_view(group) == "prime256v1";
  return is_ours ? std::move(key) : nullptr;
}

}  // namespace

Result<NodeKey> MakeNodeKey() {
  const Key key(EVP_EC_gen("P-256"));
  unsigned char* der = nullptr;
  const int size = key ? i2d_PUBKEY(key.get(), &der) : -1;
  if (size <= 0) return OpenSslError("key");
  NodeKey made = {ToPem(key.get()), {reinterpret_cast<char*>(der), static_cast<size_t>(size)}};
  OPENSSL_free(der);
  return made;
}

bool IsPublicKey(const std::string& public_key) { return ReadPublicKey(public_key) != nullptr; }

struct CertificateAuthority::State : AuthorityKeys {};

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
  X509* const certificate = state->certificate.get();
  if (certificate == nullptr ||
      X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) != 1 ||
      !AddExtension(certificate, certificate, NID_basic_constraints,
                    "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(certificate, certificate, NID_key_usage, "critical,keyCertSign") ||
      X509_sign(certificate, state->key.get(), EVP_sha256()) == 0) {
    return OpenSslError("authority");
  }
  state->certificate_pem = ToPem(state->certificate.get());
  return CertificateAuthority(std::move(state));
}

Result<pb::Credentials> CertificateAuthority::Issue(uint32_t node_index,
                                                    std::chrono::seconds valid_for) {
  const Key key(EVP_EC_gen("P-256"));
  if (!key) return OpenSslError("key");
  DSL_TRY_ASSIGN(pb::Credentials credentials, Sign(*state_, node_index, key.get(), valid_for));
  credentials.set_private_key(ToPem(key.get()));
  return credentials;
}

Result<pb::Credentials> CertificateAuthority::IssueFor(uint32_t node_index,
                                                       const std::string& public_key) {
  const Key key = ReadPublicKey(public_key);
  if (!key) return OpenSslError("a node's key");
  return Sign(*state_, node_index, key.get(), kCertificatesAreValidFor);
}

}  // namespace dslaunch
