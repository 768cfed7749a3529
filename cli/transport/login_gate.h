// Bounds the number of concurrent SSH logins, because an sshd refuses logins beyond its
// MaxStartups, and a bastion is one sshd for many nodes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// Largest number of attempts of a login that sshd turns away.
inline constexpr int kLoginAttempts = 10;
// The first and the longest pause between these attempts (PauseAfter in base/backoff.h).
inline constexpr milliseconds kFirstLoginPause{150};
inline constexpr milliseconds kLongestLoginPause{2000};

// Returns whether the last output of an ssh program shows that sshd closed the connection before
// authentication. sshd does this if too many logins arrive at once (MaxStartups). Returns false if
// sshd refused the credentials.
bool IsTurnedAwayText(std::string_view ssh_stderr);

// Limits concurrent logins, both to each sshd and in total. Thread-safe.
class LoginGate {
 public:
  static constexpr size_t kPerSshd = 8;
  static constexpr size_t kInTotal = 64;
  // Time after which a slow login stops counting. A host that never answers therefore delays other
  // logins by this time at most, not by its whole time-out.
  static constexpr milliseconds kCountsFor{3000};

  // Represents a login in progress, which counts until destroyed. Must not outlive the gate.
  class Turn {
   public:
    Turn(LoginGate* gate, uint64_t id) : gate_(gate), id_(id) {}
    Turn(Turn&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)), id_(other.id_) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (gate_ != nullptr) gate_->Leave(id_);
    }

   private:
    LoginGate* gate_;
    uint64_t id_;
  };

  // Returns the gate that all logins of this process share.
  static LoginGate& Shared();

  // Waits until a login to the sshd may begin; `sshd` is any name that identifies it. Returns
  // nullopt if `deadline` passes first.
  std::optional<Turn> Enter(const std::string& sshd, Deadline deadline);

  // Records that the sshd refused a login, which halves the number of concurrent attempts to it.
  void OnTurnedAway(const std::string& sshd);

  // Returns the number of concurrent attempts that are allowed for this sshd.
  size_t LimitFor(const std::string& sshd) const;

 private:
  struct Login {
    std::string sshd;
    Clock::time_point began;
  };

  void Leave(uint64_t id);
  size_t LimitLocked(const std::string& sshd) const DSL_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, Login> logins_ DSL_GUARDED_BY(mutex_);
  // Limits of the sshds whose limit differs from kPerSshd.
  std::map<std::string, size_t> limits_ DSL_GUARDED_BY(mutex_);
  uint64_t next_id_ DSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dslaunch
