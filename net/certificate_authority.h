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

// Issues one certificate per node: X.509 with P-256 keys; the key never touches a disk. Not
// thread-safe.
class CertificateAuthority {
 public:
  static Result<CertificateAuthority> Create(const std::string& job_id);
  CertificateAuthority(CertificateAuthority&&) noexcept;
  ~CertificateAuthority();

  // A certificate for both ends of the rendezvous, in which the node's host name (node_host_name.h)
  // says whose it is.
  Result<pb::Credentials> Issue(uint32_t node_index, const std::string& node_name,
                                std::chrono::seconds valid_for = kCertificatesAreValidFor);

 private:
  struct State;
  explicit CertificateAuthority(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dslaunch
