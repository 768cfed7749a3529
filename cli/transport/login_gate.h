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

// Attempts of a login that sshd turns away, and the pauses between them (PauseAfter in
// base/backoff.h).
inline constexpr int kLoginAttempts = 10;
inline constexpr milliseconds kFirstLoginPause{150};
inline constexpr milliseconds kLongestLoginPause{2000};

// Returns whether an ssh program's last output shows that an sshd closed the connection before
// authentication, as it does if too many arrive at once (MaxStartups). Returns false after a
// refused login.
bool IsTurnedAwayText(std::string_view ssh_stderr);

// Thread-safe.
class LoginGate {
 public:
  static constexpr size_t kPerSshd = 8;
  static constexpr size_t kInTotal = 64;
  // A slow login stops counting after this time, so that a host that never answers delays the
  // others once by this much, not by its whole time-out.
  static constexpr milliseconds kCountsFor{3000};

  // A login in progress, until destroyed. Must not outlive the gate.
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
  // The limits of sshds for which it differs from kPerSshd.
  std::map<std::string, size_t> limits_ DSL_GUARDED_BY(mutex_);
  uint64_t next_id_ DSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dslaunch
