#include "agent/node/copy_receiver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>

#include "agent/host/node_identity.h"
#include "base/errno_text.h"
#include "base/os/ownership.h"
#include "base/os/process_tree.h"
#include "base/text/hex.h"
#include "base/text/sanitize.h"
#include "base/text/size_text.h"
#include "base/unique_fd.h"
#include "proto/contract/copies.h"
#include "proto/contract/job_paths.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPartsAtOnce = 512;  // limit of the number of parts in a CopyWanted
constexpr milliseconds kLookEvery(1'000);
constexpr int kAbandonedAfterLooks = 20;
constexpr auto kUnusedFor = std::chrono::hours(90 * 24);
constexpr auto kPartsKeptFor = std::chrono::hours(7 * 24);
constexpr auto kClockSlack = std::chrono::hours(24);
constexpr uint64_t kKeepFreeBytes = 1 << 20;
constexpr uint64_t kHashAtOnceBytes = 64 << 20;

Error Failed(const std::string& what, const std::string& path, int error_number) {
  return Error{ExitCode::kIo,
               "cannot " + what + " " + Quoted(path) + ": " + ErrnoText(error_number)};
}

Error BadList(const std::string& why) {
  return Error{ExitCode::kInternal, "the list of copies " + why};
}

bool IsKey(std::string_view key) { return key.size() == 64 && IsHex(key); }

// Returns whether the path is relative and stays below the folder where it starts.
bool IsPlainPath(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos) return false;
  while (true) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, slash);
    if (name.empty() || name == "." || name == "..") return false;
    if (slash == path.size()) return true;
    path.remove_prefix(slash + 1);
  }
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

timespec TimeOf(const pb::CopyEntry& entry) {
  constexpr int64_t kSecond = 1'000'000'000;
  int64_t seconds = entry.modified_ns() / kSecond;
  int64_t rest = entry.modified_ns() % kSecond;
  if (rest < 0) {
    rest += kSecond;
    --seconds;
  }
  return {seconds, rest};
}

bool HasTime(const struct stat& status, const pb::CopyEntry& entry) {
  const timespec time = TimeOf(entry);
  return status.st_mtim.tv_sec == time.tv_sec && status.st_mtim.tv_nsec == time.tv_nsec;
}

std::string TargetOf(const std::string& link) {
  std::error_code ignored;
  return fs::read_symlink(link, ignored).string();
}

// Removes a folder and its content without following links. Changes the mode of folders that would
// prevent it.
void RemoveTree(const std::string& path) {
  std::error_code ignored;
  for (fs::recursive_directory_iterator at(path, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    if (at->is_directory(ignored) && !at->is_symlink(ignored))
      fs::permissions(at->path(), fs::perms::owner_all, fs::perm_options::add, ignored);
  }
  fs::remove_all(path, ignored);
}

std::string ThisMachine() { return ToHex(Sha256Of(NodeIdentity())).substr(0, 16); }

bool IsOlder(const fs::path& path, std::chrono::hours age) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return false;
  const auto changed = std::chrono::system_clock::from_time_t(status.st_mtim.tv_sec);
  return changed + age < std::chrono::system_clock::now();
}

// Returns a unique name for one copy: machine, process, and a number in that process.
std::string OwnName() {
  static std::atomic<unsigned> count = 0;
  const std::optional<ProcessInfo> self = ReadProcess(::getpid());
  return ThisMachine() + "-" + std::to_string(::getpid()) + "-" +
         std::to_string(self ? self->id.start_ticks : 0) + "-" + std::to_string(++count);
}

// Returns whether the owner of a lock was a process of this machine that has exited; false if that
// is unknown.
bool IsGone(const std::string& owner) {
  std::vector<std::string> parts;
  std::istringstream words(owner);
  for (std::string part; std::getline(words, part, '-');) parts.push_back(part);
  if (parts.size() != 4 || parts[0] != ThisMachine()) return false;
  const std::optional<ProcessInfo> process = ReadProcess(std::atoi(parts[1].c_str()));
  return !process || std::to_string(process->id.start_ticks) != parts[2];
}

// Returns the name of the owner's file in the lock; empty if there is no lock, or if its owner has
// not created the file yet.
std::string OwnerIn(const std::string& lock) {
  std::error_code ignored;
  const fs::directory_iterator first(lock, ignored);
  return ignored || first == fs::directory_iterator() ? "" : first->path().filename().string();
}

}  // namespace

Result<std::string> CopiesFolder() {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error);
  if (!error && own.filename().string().starts_with("agent-"))
    return (own.parent_path() / "copies").string();
  std::string cache = CacheFolder(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
  if (cache.empty()) cache = CacheFolder(nullptr, HomeOf(::geteuid()).c_str());
  if (cache.empty()) return Error{ExitCode::kIo, "the account has no home for copies"};
  return cache + "/copies";
}

Result<pb::Program> WithCopies(pb::Program program, const pb::Copies& copies) {
  if (copies.key().empty()) return program;
  DSL_TRY_ASSIGN(const std::string folder, CopiesFolder());
  const std::string place = CopyPlace(folder, copies.key());
  std::error_code ignored;
  if (!IsKey(copies.key()) || !fs::is_directory(place, ignored))
    return Error{ExitCode::kBadInput, "the copies for this job are not there: " + Quoted(place)};
  if (copies.run_there()) program.set_cwd(place);
  if (!copies.program().empty() && program.argv_size() > 0)
    program.set_argv(0, place + "/" + copies.program());
  pb::EnvVar& variable = *program.add_chosen_env();
  variable.set_name(kCopyDirVariable);
  variable.set_value(place);
  return program;
}

CopyReceiver::CopyReceiver(std::string folder, CopyPeer peer)
    : folder_(std::move(folder)), peer_(std::move(peer)) {}

CopyReceiver::~CopyReceiver() { Unlock(); }

pb::CopyOutput CopyReceiver::Run() {
  pb::CopyOutput last;
  Result<pb::CopyDone> done = Receive();
  Unlock();
  if (done.ok()) {
    *last.mutable_done() = *std::move(done);
  } else {
    last.mutable_failure()->set_exit_code(ToInt(done.error().code));
    last.mutable_failure()->set_message(done.error().message);
  }
  return last;
}

Result<pb::CopyDone> CopyReceiver::Receive() {
  DSL_TRY(ReadList());
  const Result<UniqueFd> made = OpenOwnFolder(folder_, ::geteuid(), IfMissing::kMake);
  if (!made.ok()) return made.error();
  ReadStamp();
  if (!IsComplete()) {
    DSL_TRY(Lock());
    ReadStamp();
    if (!IsComplete()) {
      RemoveOld();
      for (const std::string& path : {place_, parts_}) {
        if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
          return Failed("create the folder", path, errno);
      }
      std::vector<pb::CopyPart> wanted;
      DSL_TRY(MakeWhatIsKnown(wanted));
      DSL_TRY(CheckSpace(wanted));
      DSL_TRY_ASSIGN(const std::vector<pb::CopyPart> again, Fetch(wanted));
      DSL_TRY(Fetch(again));  // fetches whole files, so a second mismatch is an error
      DSL_TRY(FinishPlace());
    }
  }
  ::utimensat(AT_FDCWD, place_.c_str(), nullptr, 0);  // sets the time of the last use
  pb::CopyDone done;
  done.set_folder(place_);
  done.set_received_bytes(received_bytes_);
  return done;
}

Result<void> CopyReceiver::ReadList() {
  std::optional<uint64_t> num_entries;
  while (!num_entries || entries_.size() < *num_entries) {
    std::optional<pb::CopyInput> input = peer_.read();
    if (!input)
      return Error{ExitCode::kUnavailable, "the front end did not send its list of copies"};
    if (input->has_head() && !num_entries) {
      if (!IsKey(input->head().key()) || input->head().num_entries() > kMaxCopyEntries)
        return BadList("has a bad head");
      num_entries = input->head().num_entries();
      place_ = CopyPlace(folder_, input->head().key());
      parts_ = folder_ + "/.part-" + input->head().key();
      lock_ = folder_ + "/.lock-" + input->head().key();
      done_ = folder_ + "/.done-" + input->head().key();
    } else if (input->has_entries() && num_entries) {
      for (pb::CopyEntry& entry : *input->mutable_entries()->mutable_entries()) {
        DSL_TRY(CheckEntry(entry));
        entries_.push_back(std::move(entry));
      }
    } else if (input->input_case() != pb::CopyInput::INPUT_NOT_SET) {
      return BadList("is not in order");
    }
  }
  return {};
}

// Fails for an entry that would be written through a link or outside of the folder.
Result<void> CopyReceiver::CheckEntry(const pb::CopyEntry& entry) {
  if (!IsPlainPath(entry.path()) || (entry.mode() & ~kCopyModeBits) != 0)
    return BadList("has " + Quoted(entry.path()));
  const std::string parent = FolderOf(entry.path());
  if (!parent.empty() && folders_.find(parent) == folders_.end())
    return BadList("has " + Quoted(entry.path()) + " before its folder");
  if (entry.kind() == pb::CopyEntry::FOLDER) folders_.insert(entry.path());
  if (entry.kind() == pb::CopyEntry::LINK && entry.target().empty())
    return BadList("has a link without a target");
  return {};
}

bool CopyReceiver::IsThere(const pb::CopyEntry& entry) const {
  struct stat status {};
  const std::string path = PathOf(entry);
  if (::lstat(path.c_str(), &status) != 0) return false;
  const bool has_mode = (status.st_mode & kCopyModeBits) == entry.mode();
  switch (entry.kind()) {
    case pb::CopyEntry::FOLDER:
      return S_ISDIR(status.st_mode) && has_mode;
    case pb::CopyEntry::LINK:
      return S_ISLNK(status.st_mode) && TargetOf(path) == entry.target();
    default:
      return S_ISREG(status.st_mode) && has_mode &&
             static_cast<uint64_t>(status.st_size) == entry.size() && HasTime(status, entry) &&
             IsUnchanged(status);
  }
}

bool CopyReceiver::IsUnchanged(const struct stat& status) const {
  if (!done_at_) return false;
  const timespec changed = status.st_ctim;
  return changed.tv_sec < done_at_->tv_sec ||
         (changed.tv_sec == done_at_->tv_sec && changed.tv_nsec <= done_at_->tv_nsec);
}

void CopyReceiver::ReadStamp() {
  struct stat status {};
  const bool is_file = ::lstat(done_.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  done_at_ = is_file ? std::optional(status.st_mtim) : std::nullopt;
}

// Creates the file that marks the copies as complete. On a file server, the server's clock sets the
// time of this file, as it sets the change times of the copies.
Result<void> CopyReceiver::StampDone() {
  const UniqueFd file(
      ::open(done_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || ::futimens(file.get(), nullptr) != 0) return Failed("create", done_, errno);
  return {};
}

// Hashes a file in parts. Hashing can take longer than the front end waits for a sign of life, so
// one is sent between the parts.
Result<uint64_t> CopyReceiver::Hash(int fd, uint64_t size, Sha256& sum) {
  uint64_t hashed = 0;
  while (hashed < size) {
    DSL_TRY(ShowLife());
    DSL_TRY_ASSIGN(const uint64_t added,
                   AddFromFile(fd, std::min(kHashAtOnceBytes, size - hashed), sum));
    if (added == 0) break;
    hashed += added;
  }
  return hashed;
}

bool CopyReceiver::HasContent(const std::string& path, const pb::CopyEntry& entry) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<uint64_t>(status.st_size) != entry.size()) {
    return false;
  }
  Sha256 sum;
  const Result<uint64_t> hashed = Hash(file.get(), entry.size(), sum);
  return hashed.ok() && *hashed == entry.size() && sum.Finish() == entry.sha256();
}

// Returns whether the folder has all entries of the list. Times are set last, when all content is
// on disk, so a file with the right time is complete.
bool CopyReceiver::IsComplete() const {
  struct stat status {};
  return ::lstat(place_.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         std::ranges::all_of(entries_,
                             [this](const pb::CopyEntry& entry) { return IsThere(entry); });
}

// Acquires the lock by creating its folder, or by removing the file of an owner that has exited or
// is silent. The file's name identifies its owner, so the file of a newer owner is never removed.
Result<void> CopyReceiver::Lock() {
  int same_looks = 0;
  std::string last_seen;
  while (::mkdir(lock_.c_str(), 0700) != 0) {
    if (errno != EEXIST) return Failed("create the folder", lock_, errno);
    const std::string owner = OwnerIn(lock_);
    if (IsGone(owner) || same_looks >= kAbandonedAfterLooks) {
      if (!owner.empty() && ::unlink((lock_ + "/" + owner).c_str()) == 0) break;
      if (!owner.empty() && errno != ENOENT) return Failed("remove", lock_ + "/" + owner, errno);
      if (owner.empty()) ::rmdir(lock_.c_str());
      same_looks = 0;
      continue;
    }
    struct stat status {};
    (void)::lstat((lock_ + "/" + owner).c_str(), &status);
    const std::string seen = owner + " " + std::to_string(status.st_mtim.tv_sec) + "." +
                             std::to_string(status.st_mtim.tv_nsec);
    same_looks = seen == last_seen ? same_looks + 1 : 0;
    last_seen = seen;
    if (!peer_.write({})) return Error{ExitCode::kUnavailable, "the front end has gone"};
    std::this_thread::sleep_for(kLookEvery);
  }
  owner_ = lock_ + "/" + OwnName();
  const UniqueFd file(
      ::open(owner_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Failed("create", owner_, errno);
  return {};
}

Result<void> CopyReceiver::ShowLife() {
  if (!next_sign_.Expired()) return {};
  next_sign_ = Deadline::After(kLookEvery);
  if (::utimensat(AT_FDCWD, owner_.c_str(), nullptr, 0) != 0) {
    return Error{
        ExitCode::kUnavailable,
        "this node stood still for so long that another node of its home copies; start again"};
  }
  if (peer_.write({})) return {};
  return Error{ExitCode::kUnavailable, "the front end has gone"};
}

void CopyReceiver::Unlock() {
  if (owner_.empty()) return;
  ::unlink(std::exchange(owner_, "").c_str());
  ::rmdir(lock_.c_str());  // fails if another process has acquired the lock
}

void CopyReceiver::RemoveOld() const {
  // This process's own file is new. If it looks old, the clock of this node is ahead of the file
  // server's clock, so no copies are removed.
  if (IsOlder(owner_, kClockSlack)) return;
  std::error_code ignored;
  std::vector<std::string> old;
  for (fs::directory_iterator at(folder_, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (((IsKey(name) || name.starts_with(".done-")) && IsOlder(at->path(), kUnusedFor)) ||
        ((name.starts_with(".part-") || name.starts_with(".lock-")) &&
         IsOlder(at->path(), kPartsKeptFor))) {
      old.push_back(at->path().string());
    }
  }
  for (const std::string& path : old) {
    if (path != place_ && path != parts_ && path != lock_ && path != done_) RemoveTree(path);
  }
}

Result<void> CopyReceiver::MakeWhatIsKnown(std::vector<pb::CopyPart>& wanted) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    DSL_TRY(ShowLife());
    const pb::CopyEntry& entry = entries_[i];
    if (entry.kind() == pb::CopyEntry::FOLDER) {
      DSL_TRY(MakeFolder(entry));
    } else if (!IsThere(entry)) {
      DSL_TRY(entry.kind() == pb::CopyEntry::LINK ? MakeLink(entry, i)
                                                  : MakeFile(entry, i, wanted));
    }
  }
  return {};
}

// Creates a folder to which its owner may write until its content is complete.
Result<void> CopyReceiver::MakeFolder(const pb::CopyEntry& entry) const {
  const std::string path = PathOf(entry);
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) ::unlink(path.c_str());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return Failed("create the folder", path, errno);
  if (::chmod(path.c_str(), entry.mode() | 0700) != 0)
    return Failed("set the mode of", path, errno);
  return {};
}

Result<void> CopyReceiver::MakeLink(const pb::CopyEntry& entry, size_t index) const {
  const std::string part = PartOf(index);
  ::unlink(part.c_str());
  if (::symlink(entry.target().c_str(), part.c_str()) != 0)
    return Failed("create the link", PathOf(entry), errno);
  return Install(entry, index);
}

Result<void> CopyReceiver::MakeFile(const pb::CopyEntry& entry, size_t index,
                                    std::vector<pb::CopyPart>& wanted) {
  const std::string path = PathOf(entry);
  if (HasContent(path, entry)) {  // only time or mode differs, so the content is kept
    if (::chmod(path.c_str(), entry.mode()) != 0) return Failed("set the mode of", path, errno);
    return {};
  }
  pb::CopyPart part;
  part.set_entry(index);
  struct stat status {};
  if (::lstat(PartOf(index).c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
      static_cast<uint64_t>(status.st_size) <= entry.size()) {
    part.set_offset(static_cast<uint64_t>(status.st_size));
  }
  if (part.offset() == entry.size()) {
    if (entry.size() == 0) {
      const UniqueFd empty(::open(PartOf(index).c_str(),
                                  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!empty) return Failed("create the file", path, errno);
    }
    if (HasContent(PartOf(index), entry)) return Install(entry, index);
    part.set_offset(0);
  }
  wanted.push_back(std::move(part));
  return {};
}

Result<void> CopyReceiver::CheckSpace(const std::vector<pb::CopyPart>& wanted) const {
  uint64_t needed = 0;
  for (const pb::CopyPart& part : wanted) needed += entries_[part.entry()].size() - part.offset();
  struct statvfs status {};
  if (needed == 0 || ::statvfs(folder_.c_str(), &status) != 0) return {};
  const uint64_t free_bytes = uint64_t{status.f_bavail} * status.f_frsize;
  if (status.f_blocks == 0 || free_bytes >= needed + kKeepFreeBytes) return {};
  return Error{ExitCode::kIo, "there is no space for the copies: they need " + SizeText(needed) +
                                  ", and " + SizeText(free_bytes) + " are free in " + folder_ +
                                  "; free space there, or choose another folder with --agent_dir"};
}

Result<std::vector<pb::CopyPart>> CopyReceiver::Fetch(const std::vector<pb::CopyPart>& parts) {
  std::vector<pb::CopyPart> again;
  for (size_t first = 0; first < parts.size(); first += kPartsAtOnce) {
    const size_t end = std::min(parts.size(), first + kPartsAtOnce);
    pb::CopyOutput output;
    for (size_t i = first; i < end; ++i) *output.mutable_wanted()->add_parts() = parts[i];
    if (!peer_.write(std::move(output)))
      return Error{ExitCode::kUnavailable, "the front end has gone"};
    for (size_t i = first; i < end; ++i) {
      DSL_TRY_ASSIGN(const bool is_right, FetchFile(parts[i]));
      if (is_right) continue;
      const pb::CopyEntry& entry = entries_[parts[i].entry()];
      if (parts[i].offset() == 0) {
        return Error{ExitCode::kIo, Quoted(entry.path()) +
                                        " arrived otherwise than it was when the start began: it "
                                        "was changed meanwhile; start again"};
      }
      pb::CopyPart whole;
      whole.set_entry(parts[i].entry());
      again.push_back(std::move(whole));
    }
  }
  return again;
}

// Receives the missing part of a file. Returns false and removes the received file if its content
// differs from the list.
Result<bool> CopyReceiver::FetchFile(const pb::CopyPart& part) {
  const pb::CopyEntry& entry = entries_[part.entry()];
  const std::string path = PartOf(part.entry());
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(part.offset())) != 0)
    return Failed("write", path, errno);
  Sha256 sum;
  DSL_TRY_ASSIGN(const uint64_t before, Hash(file.get(), part.offset(), sum));
  if (before != part.offset()) return Failed("read", path, EIO);
  for (uint64_t missing = entry.size() - part.offset(); missing > 0;) {
    DSL_TRY(ShowLife());
    const std::optional<pb::CopyInput> input = peer_.read();
    if (!input) return Error{ExitCode::kUnavailable, "the front end has gone"};
    std::string_view data = input->data();
    if (!input->has_data() || data.size() > missing) return BadList("is followed by other data");
    sum.Add(data);
    missing -= data.size();
    received_bytes_ += data.size();
    while (!data.empty()) {
      const ssize_t n = ::write(file.get(), data.data(), data.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Failed("write", PathOf(entry), errno);
      data.remove_prefix(static_cast<size_t>(n));
    }
    pb::CopyOutput received;
    received.set_received_bytes(received_bytes_);
    if (!peer_.write(std::move(received)))
      return Error{ExitCode::kUnavailable, "the front end has gone"};
  }
  if (sum.Finish() != entry.sha256()) {
    ::unlink(path.c_str());
    return false;
  }
  DSL_TRY(Install(entry, part.entry()));
  return true;
}

Result<void> CopyReceiver::Install(const pb::CopyEntry& entry, size_t index) const {
  const std::string part = PartOf(index);
  const std::string path = PathOf(entry);
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) RemoveTree(path);
  if (entry.kind() == pb::CopyEntry::FILE && ::chmod(part.c_str(), entry.mode()) != 0)
    return Failed("set the mode of", part, errno);
  if (::rename(part.c_str(), path.c_str()) != 0) return Failed("create", path, errno);
  return {};
}

Result<void> CopyReceiver::FinishPlace() {
  const UniqueFd place(::open(place_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!place || ::syncfs(place.get()) != 0) return Failed("write", place_, errno);
  for (const pb::CopyEntry& entry : entries_) {
    if (entry.kind() != pb::CopyEntry::FILE) continue;
    const timespec times[2] = {TimeOf(entry), TimeOf(entry)};
    if (::utimensat(AT_FDCWD, PathOf(entry).c_str(), times, AT_SYMLINK_NOFOLLOW) != 0)
      return Failed("set the time of", PathOf(entry), errno);
  }
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->kind() == pb::CopyEntry::FOLDER &&
        ::chmod(PathOf(*entry).c_str(), entry->mode()) != 0)
      return Failed("set the mode of", PathOf(*entry), errno);
  }
  RemoveTree(parts_);
  return StampDone();
}

}  // namespace dslaunch
