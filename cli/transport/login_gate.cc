#include "cli/transport/login_gate.h"

#include <algorithm>

namespace dslaunch {

LoginGate& LoginGate::Shared() {
  static LoginGate gate;
  return gate;
}

std::optional<LoginGate::Turn> LoginGate::Enter(const std::string& sshd, Deadline deadline) {
  const MutexLock lock(mutex_);
  while (true) {
    const Clock::time_point now = Clock::now();
    Clock::time_point look_again = deadline.when();
    size_t in_total = 0;
    size_t here = 0;
    for (const auto& [id, login] : logins_) {
      const Clock::time_point counts_until = login.began + kCountsFor;
      if (counts_until <= now) continue;
      look_again = std::min(look_again, counts_until);
      ++in_total;
      if (login.sshd == sshd) ++here;
    }
    if (here < LimitLocked(sshd) && in_total < kInTotal) {
      const uint64_t id = next_id_++;
      logins_.emplace(id, Login{sshd, now});
      return std::make_optional<Turn>(this, id);
    }
    if (deadline.Expired()) return std::nullopt;
    changed_.WaitUntil(mutex_, look_again);
  }
}

void LoginGate::OnTurnedAway(const std::string& sshd) {
  const MutexLock lock(mutex_);
  limits_[sshd] = std::max<size_t>(1, LimitLocked(sshd) / 2);
}

size_t LoginGate::LimitFor(const std::string& sshd) const {
  const MutexLock lock(mutex_);
  return LimitLocked(sshd);
}

size_t LoginGate::LimitLocked(const std::string& sshd) const {
  const auto limit = limits_.find(sshd);
  return limit == limits_.end() ? kPerSshd : limit->second;
}

void LoginGate::Leave(uint64_t id) {
  {
    const MutexLock lock(mutex_);
    logins_.erase(id);
  }
  changed_.NotifyAll();
}

bool IsTurnedAwayText(std::string_view ssh_stderr) {
  const auto says = [ssh_stderr](std::string_view text) {
    return ssh_stderr.find(text) != std::string_view::npos;
  };
  // ssh prints these messages also when its own proxy was refused, so that case is excluded.
  const bool was_closed = says("Connection closed by ") || says("Connection reset by ") ||
                          says("_exchange_identification: ");
  return was_closed && !says("Permission denied") && !says("verification failed") &&
         !says("ssh: ") && !says("Too many authentication failures");
}

}  // namespace dslaunch
