// Creates the job's certificate authority. The front end creates it in memory and never stores it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Validity of certificates. It is so long that a node's wrong clock does no harm; the keys are
// discarded with the job.
inline constexpr std::chrono::seconds kCertificatesAreValidFor = std::chrono::hours(24 * 3650);

// The key pair (P-256) that a node has created itself.
struct NodeKey {
  std::string private_key;  // private key as PEM
  std::string public_key;   // public key as DER, SubjectPublicKeyInfo
};
Result<NodeKey> MakeNodeKey();

// Returns whether the text is a valid P-256 public key as DER.
bool IsPublicKey(const std::string& public_key);

// Issues one certificate per node: X.509 with P-256 keys. The authority's key is never written to
// disk. Not thread-safe.
class CertificateAuthority {
 public:
  static Result<CertificateAuthority> Create(const std::string& job_id);
  CertificateAuthority(CertificateAuthority&&) noexcept;
  ~CertificateAuthority();

  // Returns a certificate for both ends of the rendezvous, and its private key. The node's host
  // name (node_host_name.h) identifies the node. The certificate names neither the job nor the
  // machine.
  Result<pb::Credentials> Issue(uint32_t node_index,
                                std::chrono::seconds valid_for = kCertificatesAreValidFor);
  // Returns a certificate for a node that has created its own key; `private_key` of the result is
  // empty. Fails if `public_key` is not valid.
  Result<pb::Credentials> IssueFor(uint32_t node_index, const std::string& public_key);

 private:
  struct State;
  explicit CertificateAuthority(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dslaunch
