// Decides which process may save into a folder of checkpoints. Formats and parses the lease file,
// and judges another owner's lease. Does not access clocks, files or processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/os/process_tree.h"

namespace dslaunch {

struct LeaseOwner {
  std::string token;   // random text that is unique to each owner
  std::string job_id;  // dslaunch's id of the job; empty without a launcher
  int64_t attempt = 1;
  std::string batch_job;  // job of the batch system, such as "slurm 1234"; empty if there is none
  int64_t requeues = 0;   // number of times that the batch system has restarted the job
  std::string host;       // host name, used only in messages
  std::string machine;    // identifies a booted kernel and a PID namespace; empty if unknown
  ProcessId process;      // owner's process; valid only on `machine`
};

struct HeldLease {
  LeaseOwner owner;
  int64_t renewals = 0;    // number of renewals, which keeps increasing while the owner is alive
  int64_t renewed_ms = 0;  // Unix time by the owner's clock, only for display
  // True if the owner has released the lease. The file still names that owner, so that an earlier
  // owner that was stopped meanwhile detects that it has lost the folder.
  bool released = false;
};

// Size of a lease file in bytes. The size is fixed so that the file can be overwritten in place.
inline constexpr size_t kLeaseBytes = 4096;

std::string FormatLease(const HeldLease& lease);
// Parses a text that is not trusted. Returns nullopt if the text is not a valid lease. Names in the
// result are safe to print.
std::optional<HeldLease> ParseLease(const std::string& text);

// Returns a name for messages, such as "job 4f2a-01 on node3 (pid 4242)".
std::string Describe(const LeaseOwner& owner);

struct LeaseDecision {
  enum class Kind { kTake, kWait, kRefuse };
  Kind kind = Kind::kWait;
  std::string reason;  // clause for messages; empty for kTake if there was no other owner
};

enum class OwnerProcess { kUnknown, kAlive, kGone };

// Judges a lease file over time for a process that tries to take the lease. Use one object for each
// attempt to take the lease.
//
// Clocks of different hosts are not compared: an owner counts as dead if its lease has not changed
// for `dead_after`, measured by this process.
class LeaseWatch {
 public:
  LeaseWatch(LeaseOwner self, Clock::duration dead_after)
      : self_(std::move(self)), dead_after_(dead_after) {}

  // Returns the decision after a read of the lease file. `text` is the content of the file; nullopt
  // if the file does not exist. `process` is the state of the owner's process as far as this
  // machine can determine it.
  LeaseDecision OnLook(const std::optional<std::string>& text, OwnerProcess process,
                       Clock::time_point now);

 private:
  LeaseOwner self_;
  Clock::duration dead_after_;
  std::optional<std::string> seen_;  // content of the lease file at the last OnLook()
  Clock::time_point unchanged_since_;
};

}  // namespace dslaunch
