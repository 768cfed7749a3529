// The job's own certificate authority, made in memory by the front end and gone with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

// So long that a clock that is off on a node does no harm; the keys are gone with the job.
inline constexpr std::chrono::seconds kCertificatesAreValidFor = std::chrono::hours(24 * 3650);

// A node's own key pair (P-256).
struct NodeKey {
  std::string private_key;  // PEM
  std::string public_key;   // DER, SubjectPublicKeyInfo
};
Result<NodeKey> MakeNodeKey();

// Whether it is the public half of such a pair.
bool IsPublicKey(const std::string& public_key);

// Issues one certificate per node: X.509 with P-256 keys; the key never touches a disk. Not
// thread-safe.
class CertificateAuthority {
 public:
  static Result<CertificateAuthority> Create(const std::string& job_id);
  CertificateAuthority(CertificateAuthority&&) noexcept;
  ~CertificateAuthority();

  // A certificate for both ends of the rendezvous, in which the node's host name (node_host_name.h)
  // says whose it is, and its key. Neither the job nor the machine is named in it.
  Result<pb::Credentials> Issue(uint32_t node_index,
                                std::chrono::seconds valid_for = kCertificatesAreValidFor);
  // The same for a node that made its own key: without a private key.
  Result<pb::Credentials> IssueFor(uint32_t node_index, const std::string& public_key);

 private:
  struct State;
  explicit CertificateAuthority(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dslaunch
