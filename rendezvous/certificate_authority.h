// The job's own certificate authority, made in memory by the front end and gone with it.
#pragma once

#include <memory>
#include <string>

#include "proto/contract/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Issues one certificate per node: X.509 with P-256 keys, valid for ten years so that a clock that
// is a little off on a node does no harm; the key never touches a disk. Not thread-safe.
class CertificateAuthority {
 public:
  static Result<CertificateAuthority> Create(const std::string& job_id);
  CertificateAuthority(CertificateAuthority&&) noexcept;
  ~CertificateAuthority();

  // A certificate for both ends of the rendezvous. Every certificate of a job bears the job's host
  // name (RendezvousHostName), which is what the other end checks besides the signature.
  Result<pb::Credentials> Issue(const std::string& node_name);

 private:
  struct State;
  explicit CertificateAuthority(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The name in every certificate of the job; no real host has it.
inline std::string RendezvousHostName(const std::string& job_id) {
  return job_id + ".dslaunch.invalid";
}

}  // namespace dslaunch
