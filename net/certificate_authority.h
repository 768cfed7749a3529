// Implements the job's certificate authority. The front end creates it in memory and never stores
// it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Validity of a certificate. A node's clock may be wrong, so the validity is long; the keys are
// discarded with the job.
inline constexpr std::chrono::seconds kCertificatesAreValidFor = std::chrono::hours(24 * 3650);

// A key pair (P-256) that a node has created for itself.
struct NodeKey {
  std::string private_key;  // private key in PEM
  std::string public_key;   // public key in DER (SubjectPublicKeyInfo)
};

// Returns a new key pair. Fails with kInternal if OpenSSL fails.
Result<NodeKey> MakeNodeKey();

// Returns whether the text is a valid P-256 public key in DER.
bool IsPublicKey(const std::string& public_key);

// Issues one X.509 certificate with a P-256 key per node. The authority's key is never written to
// disk. Not thread-safe.
class CertificateAuthority {
 public:
  // Creates the authority of a job with a new key. Fails with kInternal if OpenSSL fails.
  static Result<CertificateAuthority> Create(const std::string& job_id);
  CertificateAuthority(CertificateAuthority&&) noexcept;
  ~CertificateAuthority();

  // Returns a new certificate of a node and its private key. The certificate serves for either end
  // of a connection. The node's host name (node_host_name.h) identifies the node. The certificate
  // names neither the job nor the machine.
  Result<pb::Credentials> Issue(uint32_t node_index,
                                std::chrono::seconds valid_for = kCertificatesAreValidFor);

  // Returns a certificate for a node that has created its own key; `private_key` of the result is
  // empty. Fails with kInternal if `public_key` is not valid (IsPublicKey()).
  Result<pb::Credentials> IssueFor(uint32_t node_index, const std::string& public_key);

 private:
  struct State;
  explicit CertificateAuthority(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dslaunch
