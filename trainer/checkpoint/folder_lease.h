// The lease of a folder of checkpoints: the file lease.json, by which only one job at a time saves
// into the folder. It works on network file systems, because it needs no locks and compares no
// clocks. The file stays when the lease is given back, marked as released.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "trainer/checkpoint/lease_core.h"

namespace dslaunch {

inline constexpr char kLeaseFile[] = "lease.json";

struct LeaseTimes {
  milliseconds renew_every{5'000};
  milliseconds dead_after{60'000};  // an owner without a renewal for so long is dead
  milliseconds look_every{500};     // interval of looks at a lease whose owner may be dead
};

// Returns this process as an owner: a new token, its host and pid, and the batch system's
// variables.
LeaseOwner ThisProcess(const std::string& job_id, int64_t attempt);

// Held from the constructor on; a thread of its own renews it. A process that was stopped for a
// while (SIGSTOP, a frozen machine) has lost the lease if another process has taken it meanwhile,
// even if that one has released it since. Errors are TrainError and name the folder. Thread-safe
// except for Release.
class FolderLease {
 public:
  // Takes the lease of `folder`, which must exist. If its owner may be alive, prints a line and
  // watches the lease, for a little longer than `times.dead_after`. Throws kBadInput, naming the
  // owner, if another job saves there; kIo if the lease file cannot be read or written.
  FolderLease(std::string folder, LeaseOwner self, LeaseTimes times = {});
  // Releases the lease, ignoring errors.
  ~FolderLease();
  FolderLease(const FolderLease&) = delete;
  FolderLease& operator=(const FolderLease&) = delete;

  // The earlier owner that did not release the lease, as a clause; empty if there is none.
  const std::string& taken_from() const { return taken_from_; }

  // Renews the lease. Throws kBadInput if another job has taken it, or may have: the file is gone,
  // and the last renewal is so long ago that another job could have taken the folder. If the file
  // is gone although the lease was renewed in time, creates it again. Throws kIo if it cannot be
  // written.
  void Confirm();

  // Releases the lease. Throws kIo.
  void Release();

 private:
  void Take();
  LeaseDecision Look(LeaseWatch& watch, std::optional<std::string>& text) const;
  bool Create() DSL_REQUIRES(mutex_);
  bool RemoveDead(const std::string& text) const;
  void Renew() DSL_REQUIRES(mutex_);
  void MakeAgain() DSL_REQUIRES(mutex_);
  [[noreturn]] void FailLost(const std::string& why) const;
  void KeepRenewing();
  std::string TextNow(bool released = false) const DSL_REQUIRES(mutex_);
  bool IsOwn(const std::optional<std::string>& text) const;
  std::string NewTemporary() const;

  const std::string folder_;
  const std::string path_;  // the lease file
  const LeaseOwner self_;
  const LeaseTimes times_;
  std::string taken_from_;

  Mutex mutex_;
  CondVar stop_changed_;
  bool stops_ DSL_GUARDED_BY(mutex_) = false;
  int64_t renewals_ DSL_GUARDED_BY(mutex_) = 0;
  // The last time at which this process knew that it held the lease, by two clocks that advance
  // while the process is stopped: the time since the machine's boot, and Unix time, which also
  // advances while the machine is frozen.
  struct Moment {
    milliseconds since_boot{0};
    int64_t unix_ms = 0;
  };
  static Moment Now();
  Moment known_ DSL_GUARDED_BY(mutex_);
  std::thread renewer_;
};

}  // namespace dslaunch
