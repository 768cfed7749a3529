// Implements the lease of a folder of checkpoints: the file lease.json, which lets only one job at
// a time save into the folder. The lease needs no locks and does not compare clocks, so it works on
// network file systems. A released lease is marked as released and its file is kept.
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
  milliseconds dead_after{60'000};  // time without renewal after which an owner counts as dead
  milliseconds look_every{500};     // interval between reads of a lease whose owner may be dead
};

// Returns an owner that describes this process: a new token, the host and pid, and the batch
// system's variables.
LeaseOwner ThisProcess(const std::string& job_id, int64_t attempt);

// Holds the lease of a folder; a separate thread renews it. A process that was suspended (SIGSTOP,
// a frozen machine) has lost the lease if another process has taken it meanwhile, even if the other
// process has released it again. Throws TrainError that names the folder. Thread-safe except for
// Release.
class FolderLease {
 public:
  // Takes the lease of `folder`, which must exist. If the lease's owner may be alive, prints a line
  // and watches the lease for slightly longer than `times.dead_after`. Throws kBadInput, naming the
  // owner, if another job saves into the folder; kIo if the lease file cannot be read or written;
  // kTimedOut if other processes repeatedly take the lease first.
  FolderLease(std::string folder, LeaseOwner self, LeaseTimes times = {});
  // Releases the lease, ignoring errors.
  ~FolderLease();
  FolderLease(const FolderLease&) = delete;
  FolderLease& operator=(const FolderLease&) = delete;

  // Returns a clause about an earlier owner that did not release the lease; empty if there was no
  // such owner.
  const std::string& taken_from() const { return taken_from_; }

  // Renews the lease. Throws kBadInput if another job has taken the lease. If the file is missing,
  // creates it again, but throws kBadInput if the last renewal is so long ago that another job
  // could have taken the folder. Throws kIo if the file cannot be written.
  void Confirm();

  // Releases the lease. Throws kIo if the file cannot be read or written.
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
  const std::string path_;
  const LeaseOwner self_;
  const LeaseTimes times_;
  std::string taken_from_;

  Mutex mutex_;
  CondVar stop_changed_;
  bool stops_ DSL_GUARDED_BY(mutex_) = false;
  int64_t renewals_ DSL_GUARDED_BY(mutex_) = 0;
  // The last time at which this process certainly held the lease, on two clocks that advance while
  // the process is stopped: the time since boot, and Unix time, which also advances while the
  // machine is suspended.
  struct Moment {
    milliseconds since_boot{0};
    int64_t unix_ms = 0;
  };
  static Moment Now();
  Moment known_ DSL_GUARDED_BY(mutex_);
  std::thread renewer_;
};

}  // namespace dslaunch
