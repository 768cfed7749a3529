// Preloaded (LD_PRELOAD) into a process: counts the calls that change files below one folder, and
// at the chosen call kills the process or simulates a disk failure. Calls inside the C library (by
// stdio) are not counted; checkpoints are written without stdio.
//   FILE_FAULTS_FOLDER  the folder, an absolute path without symbolic links
//   FILE_FAULTS_TRACE   a file that gets a line for each completed call, in order over all
//                       processes that share it: {"rank", "number", "call", "path", "to", "result"}
//   FILE_FAULTS_AT      the number of the call that fails, from 1; 0 if no call fails
//   FILE_FAULTS_KIND    before | after: SIGKILL before or after the call; half: SIGKILL when
//                       half of a write is written; ENOSPC | EIO: the call and every later call
//                       fail. A full disk (ENOSPC) still writes half of the bytes of the first
//                       failing write and still removes files.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

enum class Kind { kBefore, kAfter, kHalf, kFull, kBroken };

struct Plan {
  std::string folder;
  int trace_fd = -1;
  std::string rank;
  long at = 0;
  Kind kind = Kind::kBefore;
};

std::atomic<long> calls{0};

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Plan ReadPlan() {
  Plan plan;
  plan.folder = Variable("FILE_FAULTS_FOLDER") + "/";
  plan.rank = Variable("RANK");
  plan.at = std::atol(Variable("FILE_FAULTS_AT").c_str());
  const std::string kind = Variable("FILE_FAULTS_KIND");
  plan.kind = kind == "after"    ? Kind::kAfter
              : kind == "half"   ? Kind::kHalf
              : kind == "ENOSPC" ? Kind::kFull
              : kind == "EIO"    ? Kind::kBroken
                                 : Kind::kBefore;
  if (const std::string trace = Variable("FILE_FAULTS_TRACE"); !trace.empty()) {
    plan.trace_fd = Next<int(const char*, int, ...)>("open")(
        trace.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  }
  return plan;
}

Plan& ThePlan() {
  static Plan plan = ReadPlan();
  return plan;
}

// start_once.cc forks processes that have their own variables, so the plan is read again after a
// fork.
__attribute__((constructor)) void FollowForks() {
  pthread_atfork(nullptr, nullptr, [] {
    calls = 0;
    ThePlan() = ReadPlan();
  });
}

std::string PathOf(int fd) {
  char path[PATH_MAX];
  const std::string link =
      fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(fd);
  const ssize_t n = readlink(link.c_str(), path, sizeof path);
  return n < 0 ? "" : std::string(path, static_cast<size_t>(n));
}

std::string PathAt(int folder, const char* path) {
  if (path[0] == '/') return path;
  return PathOf(folder) + "/" + path;
}

bool Below(const std::string& path) {
  const std::string& folder = ThePlan().folder;
  return folder.size() > 1 && (path + "/").compare(0, folder.size(), folder) == 0;
}

bool Removes(const char* call) {
  return std::strcmp(call, "unlink") == 0 || std::strcmp(call, "rmdir") == 0;
}

// Counts the call and runs it as planned. `run` makes the real call; `half` writes half of the
// bytes.
template <class Run, class Half>
long Faulty(const char* call, const std::string& path, const std::string& to, Run run, Half half) {
  const Plan& plan = ThePlan();
  const long number = ++calls;
  const bool hit = number == plan.at;
  const bool is_write = std::strcmp(call, "write") == 0;
  if (hit && plan.kind == Kind::kHalf && is_write) half();
  if (hit && (plan.kind == Kind::kBefore || plan.kind == Kind::kHalf)) raise(SIGKILL);
  const bool failed = plan.at > 0 && number >= plan.at &&
                      (plan.kind == Kind::kBroken || (plan.kind == Kind::kFull && !Removes(call)));
  long result = -1;
  int error = plan.kind == Kind::kFull ? ENOSPC : EIO;
  if (!failed) {
    result = run();
    error = errno;
  } else if (hit && is_write && plan.kind == Kind::kFull) {
    result = half();
    if (result == 0) result = -1;
  }
  if (plan.trace_fd >= 0) {
    const std::string line = "{\"rank\":" + (plan.rank.empty() ? "0" : plan.rank) +
                             ",\"number\":" + std::to_string(number) + ",\"call\":\"" + call +
                             "\",\"path\":\"" + path + "\",\"to\":\"" + to +
                             "\",\"result\":" + std::to_string(result) + "}\n";
    static const auto real_write = Next<ssize_t(int, const void*, size_t)>("write");
    if (real_write(plan.trace_fd, line.data(), line.size()) < 0) abort();
  }
  if (hit && plan.kind == Kind::kAfter) raise(SIGKILL);
  errno = error;
  return result;
}

template <class Run>
long Faulty(const char* call, const std::string& path, const std::string& to, Run run) {
  return Faulty(call, path, to, run, [] { return 0L; });
}

int Open(const char* symbol, int folder, const char* path, int flags, mode_t mode) {
  const auto run = [&] {
    return Next<int(int, const char*, int, ...)>(symbol)(folder, path, flags, mode);
  };
  if ((flags & O_CREAT) == 0) return run();
  const std::string whole = PathAt(folder, path);
  return Below(whole) ? static_cast<int>(Faulty("open", whole, "", run)) : run();
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

template <class Run, class Half>
ssize_t Write(int fd, Run run, Half half) {
  const std::string path = PathOf(fd);
  return Below(path) ? Faulty("write", path, "", run, half) : run();
}

int Sync(const char* symbol, int fd) {
  const auto run = [&] { return Next<int(int)>(symbol)(fd); };
  const std::string path = PathOf(fd);
  return Below(path) ? static_cast<int>(Faulty("fsync", path, "", run)) : run();
}

template <class Run>
int Named(const char* call, const std::string& path, const std::string& to, Run run) {
  return Below(path) || (!to.empty() && Below(to)) ? static_cast<int>(Faulty(call, path, to, run))
                                                   : run();
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open("openat", AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open("openat64", AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open("openat", folder, path, flags, mode);
}

int openat64(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open("openat64", folder, path, flags, mode);
}

ssize_t write(int fd, const void* data, size_t bytes) {
  static const auto real = Next<ssize_t(int, const void*, size_t)>("write");
  return Write(
      fd, [&] { return real(fd, data, bytes); }, [&] { return real(fd, data, bytes / 2); });
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  static const auto real = Next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return Write(
      fd, [&] { return real(fd, data, bytes, offset); },
      [&] { return real(fd, data, bytes / 2, offset); });
}

ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  return pwrite(fd, data, bytes, offset);
}

int fsync(int fd) { return Sync("fsync", fd); }
int fdatasync(int fd) { return Sync("fdatasync", fd); }

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return Named((flags & RENAME_EXCHANGE) != 0 ? "exchange" : "rename", PathAt(from_folder, from),
               PathAt(to_folder, to), [&] {
                 return Next<int(int, const char*, int, const char*, unsigned)>("renameat2")(
                     from_folder, from, to_folder, to, flags);
               });
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return renameat2(from_folder, from, to_folder, to, 0);
}

int rename(const char* from, const char* to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int link(const char* from, const char* to) {
  return Named("link", PathAt(AT_FDCWD, from), PathAt(AT_FDCWD, to),
               [&] { return Next<int(const char*, const char*)>("link")(from, to); });
}

int mkdirat(int folder, const char* path, mode_t mode) {
  return Named("mkdir", PathAt(folder, path), "",
               [&] { return Next<int(int, const char*, mode_t)>("mkdirat")(folder, path, mode); });
}

int mkdir(const char* path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int folder, const char* path, int flags) {
  return Named((flags & AT_REMOVEDIR) != 0 ? "rmdir" : "unlink", PathAt(folder, path), "",
               [&] { return Next<int(int, const char*, int)>("unlinkat")(folder, path, flags); });
}

int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char* path) {
  struct stat info;
  return lstat(path, &info) == 0 && S_ISDIR(info.st_mode) ? rmdir(path) : unlink(path);
}

}  // extern "C"
