// The lease of a folder of checkpoints: the file lease.json, by which only one job at a time saves
// into the folder. It works on network file systems: no locks, and no comparison of clocks. The
// file stays when the lease is given back, and says so.
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
  milliseconds dead_after{60'000};  // without a renewal; it must be several times renew_every
  milliseconds look_every{500};     // while another owner may be dead
};

// This process as an owner: a new token, its host and pid, and the batch system's variables.
LeaseOwner ThisProcess(const std::string& job_id, int64_t attempt);

// Held from the constructor on; a thread of its own renews it. A process that was stopped for a
// while (SIGSTOP, a frozen machine) has lost it where another one has taken it since, whether that
// one still has it or not. Errors are TrainError, and name the folder. Thread-safe but for Release.
class FolderLease {
 public:
  // Takes the lease of `folder`, which exists. If it is not clear whether its owner lives, prints a
  // line and watches it, for little longer than `times.dead_after`. Throws kBadInput, naming the
  // owner, if another job saves there; kIo.
  FolderLease(std::string folder, LeaseOwner self, LeaseTimes times = {});
  // Gives the lease back, without errors.
  ~FolderLease();
  FolderLease(const FolderLease&) = delete;
  FolderLease& operator=(const FolderLease&) = delete;

  // The owner that had it and did not give it back, as one clause; empty if there is none.
  const std::string& taken_from() const { return taken_from_; }

  // Renews the lease. Throws kBadInput if another job has taken it meanwhile, or may have: the file
  // is gone, and the last renewal is so long ago that another job could take the folder. A file
  // that somebody removed from a lease that was renewed all the time is made again. kIo if it
  // cannot be written.
  void Confirm();

  // Gives the lease back. kIo.
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
  const std::string path_;  // of the file
  const LeaseOwner self_;
  const LeaseTimes times_;
  std::string taken_from_;

  Mutex mutex_;
  CondVar stop_changed_;
  bool stops_ DSL_GUARDED_BY(mutex_) = false;
  int64_t renewals_ DSL_GUARDED_BY(mutex_) = 0;
  // When this process last knew that the lease was its own, by two clocks that go on while it does
  // not: that of the machine since its boot, and Unix time, which a machine that was frozen sets.
  struct Moment {
    milliseconds since_boot{0};
    int64_t unix_ms = 0;
  };
  static Moment Now();
  Moment known_ DSL_GUARDED_BY(mutex_);
  std::thread renewer_;
};

}  // namespace dslaunch
