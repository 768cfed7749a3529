// Decides which process may save into a folder of checkpoints: the text of the lease file and the
// decision on another owner's lease. Pure: no clock, no files, no processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/os/process_tree.h"

namespace dslaunch {

struct LeaseOwner {
  std::string token;   // random, unique
  std::string job_id;  // dslaunch's id of the job; empty without a launcher
  int64_t attempt = 1;
  std::string batch_job;  // the batch system's name of the job, "slurm 1234"; empty outside of one
  int64_t requeues = 0;   // number of restarts of the job by the batch system
  std::string host;       // host name, shown in messages only
  std::string machine;    // identifies a kernel and a PID namespace; empty if not known
  ProcessId process;      // valid on `machine` only
};

struct HeldLease {
  LeaseOwner owner;
  int64_t renewals = 0;    // counts renewals: it increases as long as the owner is alive
  int64_t renewed_ms = 0;  // Unix time by the owner's clock, for display only
  // The owner has released the lease. The file still names that owner, so that an earlier owner
  // that was stopped meanwhile sees that it has lost the folder.
  bool released = false;
};

// Every lease file has this size, so that it can be overwritten in place.
inline constexpr size_t kLeaseBytes = 4096;

std::string FormatLease(const HeldLease& lease);
// Parses text that is not trusted; nullopt if it is not a valid lease. Names in the result are safe
// to print.
std::optional<HeldLease> ParseLease(const std::string& text);

// "job 4f2a-01 on node3 (pid 4242)"
std::string Describe(const LeaseOwner& owner);

struct LeaseDecision {
  enum class Kind { kTake, kWait, kRefuse };
  Kind kind = Kind::kWait;
  std::string reason;  // clause for people; for kRefuse and for another owner's lease
};

enum class OwnerProcess { kUnknown, kAlive, kGone };

// Watches the lease file for a process that wants the lease. One object for each attempt to take
// it.
//
// Clocks of different hosts are not compared: an owner counts as dead if its lease has not changed
// for `dead_after`, measured by this process.
class LeaseWatch {
 public:
  LeaseWatch(LeaseOwner self, Clock::duration dead_after)
      : self_(std::move(self)), dead_after_(dead_after) {}

  // `text` is the content of the lease file; nullopt if there is none. `process` is the state of
  // the owner's process as far as this machine knows it.
  LeaseDecision OnLook(const std::optional<std::string>& text, OwnerProcess process,
                       Clock::time_point now);

 private:
  LeaseOwner self_;
  Clock::duration dead_after_;
  std::optional<std::string> seen_;  // content at the last look
  Clock::time_point unchanged_since_;
};

}  // namespace dslaunch
