#include "trainer/checkpoint/folder_lease.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "base/deadline.h"
#include "base/os/proc_text.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

[[noreturn]] void FailLease(const std::string& path, const char* what) {
  throw TrainError(ExitCode::kIo, path + ": cannot be " + what + ": " + std::strerror(errno));
}

void WriteAll(int fd, const std::string& text, const std::string& path) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = pwrite(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailLease(path, "written");
    done += static_cast<size_t>(n);
  }
}

// Closes a written file. Network file systems may report a failed write only then, so the result is
// checked.
void CloseWritten(UniqueFd& fd, const std::string& path) {
  if (close(fd.Release()) < 0) FailLease(path, "written");
}

std::string ReadLeaseText(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) < 0) FailLease(path, "read");
  if (!S_ISREG(info.st_mode)) {
    throw TrainError(ExitCode::kBadInput, path + " is not a file; remove it");
  }
  std::string text(kLeaseBytes, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailLease(path, "read");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

// Returns the content of the lease file; nullopt if it does not exist. Network file systems fetch
// the writes of other hosts only when a file is opened, so each call opens the file.
std::optional<std::string> ReadLeaseFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) FailLease(path, "read");
  return ReadLeaseText(fd.get(), path);
}

void RemoveLeaseFile(const std::string& path) {
  if (unlink(path.c_str()) < 0 && errno != ENOENT) FailLease(path, "removed");
}

void MakeLeaseFile(const std::string& path, const std::string& text) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) FailLease(path, "made");
  WriteAll(fd.get(), text, path);
  CloseWritten(fd, path);
}

std::string ThisMachine() {
  std::optional<std::string> boot = ReadWhole("/proc/sys/kernel/random/boot_id");
  char pids[64];
  const ssize_t n = readlink("/proc/self/ns/pid", pids, sizeof pids);
  if (!boot || n <= 0) return "";
  std::string_view text = *boot;
  return std::string(TakeLine(text)) + " " + std::string(pids, static_cast<size_t>(n));
}

OwnerProcess StateOf(const HeldLease& lease, const LeaseOwner& self) {
  const LeaseOwner& owner = lease.owner;
  if (self.machine.empty() || owner.machine != self.machine || owner.process.pid <= 0) {
    return OwnerProcess::kUnknown;
  }
  if (const std::optional<ProcessInfo> process = ReadProcess(owner.process.pid)) {
    return process->id == owner.process && !process->ended ? OwnerProcess::kAlive
                                                           : OwnerProcess::kGone;
  }
  // /proc may hide the processes of other users, so kill() determines whether the process exists.
  const bool none = kill(owner.process.pid, 0) < 0 && errno == ESRCH;
  return none ? OwnerProcess::kGone : OwnerProcess::kUnknown;
}

std::string RandomHex() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

// Returns a clause on the age of the owner's last renewal, without the age if the owner uses the
// clock of another machine.
std::string AgeText(const std::optional<std::string>& text, const LeaseOwner& self) {
  const std::optional<HeldLease> lease = text ? ParseLease(*text) : std::nullopt;
  if (!lease) return "";
  if (lease->owner.machine != self.machine) return ", and its heartbeat continues";
  const int64_t age_ms = std::max<int64_t>(0, UnixMs() - lease->renewed_ms);
  return ", with a heartbeat " + std::to_string(age_ms / 1000) + " s ago";
}

int64_t NumberIn(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::max(0LL, std::atoll(text));
}

}  // namespace

LeaseOwner ThisProcess(const std::string& job_id, int64_t attempt) {
  LeaseOwner self;
  self.token = RandomHex();
  self.job_id = job_id;
  self.attempt = attempt;
  if (const char* slurm = std::getenv("SLURM_JOB_ID"); slurm != nullptr && *slurm != '\0') {
    self.batch_job = std::string("slurm ") + slurm;
    self.requeues = NumberIn("SLURM_RESTART_COUNT");
  }
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) self.host = host;
  self.machine = ThisMachine();
  if (const std::optional<ProcessInfo> own = ReadProcess(getpid())) self.process = own->id;
  return self;
}

FolderLease::FolderLease(std::string folder, LeaseOwner self, LeaseTimes times)
    : folder_(std::move(folder)),
      path_(folder_ + "/" + kLeaseFile),
      self_(std::move(self)),
      times_(times) {
  Take();
  renewer_ = std::thread([this] { KeepRenewing(); });
}

FolderLease::~FolderLease() {
  try {
    Release();
  } catch (const TrainError&) {
    // If the release fails, the lease file names a dead owner and the next job can take the lease,
    // so the error is ignored.
  }
}

void FolderLease::Take() {
  const MutexLock lock(mutex_);
  LeaseWatch watch(self_, times_.dead_after);
  // Other processes may repeatedly take the lease first, so a deadline ends the loop.
  const Deadline deadline = Deadline::After(2 * times_.dead_after + milliseconds(10'000));
  bool said = false;
  while (true) {
    std::optional<std::string> text;
    known_ = Now();
    const LeaseDecision decision = Look(watch, text);
    switch (decision.kind) {
      case LeaseDecision::Kind::kRefuse:
        throw TrainError(ExitCode::kBadInput,
                         folder_ + ": " + decision.reason + AgeText(text, self_) +
                             "; stop that job, wait until it has ended, or give another folder");
      case LeaseDecision::Kind::kTake:
        if (IsOwn(text)) return;
        if ((!text || RemoveDead(*text)) && Create()) {
          taken_from_ = decision.reason;
          return;
        }
        break;
      case LeaseDecision::Kind::kWait:
        if (!std::exchange(said, true)) {
          PrintLine(folder_ + ": " + decision.reason + " has the lease (" + kLeaseFile +
                    "); waiting up to " + std::to_string(times_.dead_after.count() / 1000) +
                    " s to see whether it still renews it");
        }
        break;
    }
    if (deadline.Expired()) {
      throw TrainError(ExitCode::kTimedOut,
                       folder_ + ": its lease (" + kLeaseFile +
                           ") could not be taken, because other jobs try the same; start the jobs "
                           "one after the other, or give them different folders");
    }
    std::this_thread::sleep_for(times_.look_every);
  }
}

LeaseDecision FolderLease::Look(LeaseWatch& watch, std::optional<std::string>& text) const {
  text = ReadLeaseFile(path_);
  const std::optional<HeldLease> lease = text ? ParseLease(*text) : std::nullopt;
  return watch.OnLook(text, lease ? StateOf(*lease, self_) : OwnerProcess::kUnknown, Clock::now());
}

// Creates the lease file by a link, so that the file appears with its whole content or not at all.
// Returns whether the file belongs to this process.
bool FolderLease::Create() {
  const std::string temporary = NewTemporary();
  const std::string text = TextNow();
  MakeLeaseFile(temporary, text);
  const bool made = link(temporary.c_str(), path_.c_str()) == 0;
  const int why = made ? 0 : errno;
  RemoveLeaseFile(temporary);
  switch (why) {
    case 0:
      return true;
    case EEXIST:  // network file systems may report EEXIST after they have created the link
      return IsOwn(ReadLeaseFile(path_));
    case ENOENT:  // the owner's RemoveLeftovers has removed the temporary file
      return false;
    case EPERM:  // the file system does not support links
    case EOPNOTSUPP:
    case ENOSYS:
      MakeLeaseFile(path_, text);
      return true;
    default:
      errno = why;
      FailLease(path_, "made");
  }
}

// Removes the lease file if its content is `text`, whose owner is dead or has released the lease.
// Returns whether the file was removed. If several processes call it, only one of them removes the
// file.
bool FolderLease::RemoveDead(const std::string& text) const {
  if (ReadLeaseFile(path_) != text) return false;
  const std::string aside = NewTemporary();
  if (rename(path_.c_str(), aside.c_str()) < 0) {
    if (errno == ENOENT) return true;
    FailLease(path_, "removed");
  }
  const bool is_dead = ReadLeaseFile(aside) == text;
  // If the content differs, another process has taken the lease in the meantime and the renamed
  // file is its lease, so the file is restored.
  if (!is_dead && link(aside.c_str(), path_.c_str()) < 0 && errno != EEXIST) {
    FailLease(path_, "made");
  }
  RemoveLeaseFile(aside);
  return is_dead;
}

void FolderLease::Confirm() {
  const MutexLock lock(mutex_);
  Renew();
}

FolderLease::Moment FolderLease::Now() {
  timespec time = {};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return {milliseconds(time.tv_sec * 1000 + time.tv_nsec / 1'000'000), UnixMs()};
}

void FolderLease::FailLost(const std::string& why) const {
  throw TrainError(ExitCode::kBadInput,
                   folder_ + ": this job no longer has the lease of the folder (" + kLeaseFile +
                       "): " + why +
                       "; this job saves nothing more there; if restarted, it continues from the "
                       "newest checkpoint");
}

void FolderLease::Renew() {
  const Moment now = Now();
  UniqueFd fd(open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd && errno == ENOENT) return MakeAgain();
  if (!fd) FailLease(path_, "read");
  const auto check = [this](const std::string& text) {
    if (IsOwn(text)) return;
    const std::optional<HeldLease> taken = ParseLease(text);
    FailLost((taken ? Describe(taken->owner) : "something else") + " has taken it" +
             (taken && taken->released ? ", and has given it back" : ""));
  };
  check(ReadLeaseText(fd.get(), path_));
  ++renewals_;
  WriteAll(fd.get(), TextNow(), path_);
  CloseWritten(fd, path_);
  // This process may have been stopped before it wrote, and another process may have replaced the
  // file meanwhile, so the file is read again.
  const std::optional<std::string> there = ReadLeaseFile(path_);
  if (!there) return MakeAgain();
  check(*there);
  known_ = now;
}

void FolderLease::MakeAgain() {
  const Moment now = Now();
  const milliseconds unknown =
      std::max(now.since_boot - known_.since_boot, milliseconds(now.unix_ms - known_.unix_ms));
  if (unknown > times_.dead_after / 2) {
    FailLost("the file is gone, and for " +
             std::to_string(std::chrono::duration_cast<std::chrono::seconds>(unknown).count()) +
             " s this job has not renewed it, so another job may have had the folder");
  }
  if (!Create()) return Renew();
  known_ = now;
}

void FolderLease::KeepRenewing() {
  while (true) {
    const MutexLock lock(mutex_);
    if (stop_changed_.WaitFor(mutex_, times_.renew_every,
                              [this]() DSL_REQUIRES(mutex_) { return stops_; })) {
      return;
    }
    try {
      Renew();
    } catch (const TrainError&) {
      // The next Confirm reports a persistent error before a save, so training continues.
    }
  }
}

void FolderLease::Release() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
  }
  stop_changed_.NotifyAll();
  if (!renewer_.joinable()) return;
  renewer_.join();
  const MutexLock lock(mutex_);
  UniqueFd fd(open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd && errno == ENOENT) return;
  if (!fd) FailLease(path_, "read");
  if (!IsOwn(ReadLeaseText(fd.get(), path_))) return;
  WriteAll(fd.get(), TextNow(/*released=*/true), path_);
  if (fsync(fd.get()) < 0 && errno != EINVAL) FailLease(path_, "synced");
  CloseWritten(fd, path_);  // the folder is not synced here, because each save syncs it
}

std::string FolderLease::TextNow(bool released) const {
  return FormatLease(
      {.owner = self_, .renewals = renewals_, .renewed_ms = UnixMs(), .released = released});
}

bool FolderLease::IsOwn(const std::optional<std::string>& text) const {
  const std::optional<HeldLease> lease = text ? ParseLease(*text) : std::nullopt;
  return lease && lease->owner.token == self_.token;
}

std::string FolderLease::NewTemporary() const {
  return folder_ + "/tmp-lease-" + RandomHex().substr(0, 8);
}

}  // namespace dslaunch
