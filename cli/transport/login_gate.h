// Bounds the number of SSH logins at once. An sshd refuses logins beyond its MaxStartups, and a
// bastion is one sshd for many nodes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// A login that sshd turned away is tried again, this often in all and after these pauses
// (PauseAfter in base/backoff.h).
inline constexpr int kLoginAttempts = 10;
inline constexpr milliseconds kFirstLoginPause{150};
inline constexpr milliseconds kLongestLoginPause{2000};

// Thread-safe.
class LoginGate {
 public:
  static constexpr size_t kPerSshd = 8;
  static constexpr size_t kInTotal = 64;
  // A login that takes longer holds no other login up: a host that never answers costs the others
  // this much once, not its whole time-out.
  static constexpr milliseconds kCountsFor{3000};

  // A login under way, until destroyed. Must not outlive the gate.
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

  // The one that this process's logins share.
  static LoginGate& Shared();

  // Waits until a login to this sshd (any name that tells it from others) may begin. nullopt when
  // `deadline` comes first.
  std::optional<Turn> Enter(const std::string& sshd, Deadline deadline);

  // This sshd refused a login: from now on half as many as before are tried at once.
  void OnTurnedAway(const std::string& sshd);

  // How many are tried at once with this sshd.
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
  std::map<std::string, size_t> limits_ DSL_GUARDED_BY(mutex_);  // where it is not kPerSshd
  uint64_t next_id_ DSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dslaunch
