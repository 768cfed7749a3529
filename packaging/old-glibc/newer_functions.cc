// Implements functions of glibc newer than 2.28 that dslaunch, its libraries or libstdc++ call,
// with functions of glibc 2.28. This file is linked into programs that must run with glibc 2.28
// (packaging/cmake/OldGlibc.cmake). The functions are hidden, so that no shared library calls them.
// Some call the function of the node's glibc if it exists, because glibc 2.28 cannot implement them
// exactly.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr long kNanosecondsPerSecond = 1'000'000'000;
#ifdef __x86_64__
constexpr int kStatVersion = 1;
#else
constexpr int kStatVersion = 0;  // value for machines whose struct stat is the kernel's
#endif

// Returns the function of the node's glibc; null if it does not exist.
template <class Function>
Function Find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// Returns the time of the wall clock at which `clock` will show `time`.
timespec OnWallClock(clockid_t clock, const timespec& time) {
  timespec now{}, wall{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += time.tv_sec - now.tv_sec;
  wall.tv_nsec += time.tv_nsec - now.tv_nsec;
  if (wall.tv_nsec < 0) {
    wall.tv_nsec += kNanosecondsPerSecond;
    --wall.tv_sec;
  } else if (wall.tv_nsec >= kNanosecondsPerSecond) {
    wall.tv_nsec -= kNanosecondsPerSecond;
    ++wall.tv_sec;
  }
  return wall;
}

struct ObjectSearch {
  uintptr_t address;
  dl_find_object* found;
};

int VisitObject(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<ObjectSearch*>(data);
  bool inside = false;
  const ElfW(Phdr)* frames = nullptr;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const uintptr_t at = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_GNU_EH_FRAME) frames = &segment;
    if (segment.p_type != PT_LOAD) continue;
    begin = at < begin ? at : begin;
    end = at + segment.p_memsz > end ? at + segment.p_memsz : end;
    inside = inside || (search.address >= at && search.address < at + segment.p_memsz);
  }
  if (!inside || frames == nullptr) return 0;
  *search.found = {};
  search.found->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.found->dlfo_map_end = reinterpret_cast<void*>(end);
  search.found->dlfo_eh_frame = reinterpret_cast<void*>(info->dlpi_addr + frames->p_vaddr);
  return 1;
}

}  // namespace

extern "C" {

using InitFunction = void (*)(int, char**, char**);
using MainFunction = int (*)(int, char**, char**);
extern InitFunction __preinit_array_start[] __attribute__((visibility("hidden")));
extern InitFunction __preinit_array_end[] __attribute__((visibility("hidden")));
extern InitFunction __init_array_start[] __attribute__((visibility("hidden")));
extern InitFunction __init_array_end[] __attribute__((visibility("hidden")));
void _init();
int __real___libc_start_main(MainFunction, int, char**, InitFunction, void (*)(), void (*)(),
                             void*);

// Runs the constructors of the program. Before glibc 2.34, programs ran their own constructors, but
// crt1.o of a newer glibc does not run them.
static void RunConstructors(int argc, char** argv, char** environment) {
  for (InitFunction* each = __preinit_array_start; each != __preinit_array_end; ++each)
    (*each)(argc, argv, environment);
  _init();
  for (InitFunction* each = __init_array_start; each != __init_array_end; ++each)
    (*each)(argc, argv, environment);
}

int __wrap___libc_start_main(MainFunction main, int argc, char** argv, InitFunction, void (*)(),
                             void (*unload)(), void* stack_end) {
  return __real___libc_start_main(main, argc, argv, RunConstructors, nullptr, unload, stack_end);
}

// glibc 2.32. 0 means that the process may have more than one thread, which is always safe and only
// costs time.
char __libc_single_threaded = 0;

// Added in glibc 2.33. Before, these functions were in libc_nonshared.a.
int __fxstat(int, int, struct stat*);
int __xstat(int, const char*, struct stat*);
int __lxstat(int, const char*, struct stat*);
int __fxstatat(int, int, const char*, struct stat*, int);
int fstat(int fd, struct stat* status) { return __fxstat(kStatVersion, fd, status); }
int stat(const char* path, struct stat* status) { return __xstat(kStatVersion, path, status); }
int lstat(const char* path, struct stat* status) { return __lxstat(kStatVersion, path, status); }
int fstatat(int folder, const char* path, struct stat* status, int flags) {
  return __fxstatat(kStatVersion, folder, path, status, flags);
}
int fstat64(int fd, struct stat64* status) {
  // Both structs are equal on 64-bit machines.
  return __fxstat(kStatVersion, fd, reinterpret_cast<struct stat*>(status));
}

// Added in glibc 2.30. With an older glibc, a step of the wall clock during the wait makes the wait
// longer or shorter.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* time) {
  static const auto own = Find<decltype(&pthread_cond_clockwait)>("pthread_cond_clockwait");
  if (own != nullptr) return own(condition, mutex, clock, time);
  const timespec wall = OnWallClock(clock, *time);
  return pthread_cond_timedwait(condition, mutex, &wall);
}
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                            const timespec* time) noexcept {
  static const auto own = Find<decltype(&pthread_mutex_clocklock)>("pthread_mutex_clocklock");
  if (own != nullptr) return own(mutex, clock, time);
  const timespec wall = OnWallClock(clock, *time);
  return pthread_mutex_timedlock(mutex, &wall);
}

int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* time) {
  static const auto own = Find<decltype(&sem_clockwait)>("sem_clockwait");
  if (own != nullptr) return own(semaphore, clock, time);
  const timespec wall = OnWallClock(clock, *time);
  return sem_timedwait(semaphore, &wall);
}

// Added in glibc 2.34.
int close_range(unsigned first, unsigned last, int flags) noexcept {
  constexpr long kCloseRange = 436;
  return static_cast<int>(syscall(kCloseRange, first, last, flags));
}
// Added in glibc 2.34. An older glibc has only fork(), which also runs the handlers of
// pthread_atfork. The handlers of gRPC may wait for its threads.
pid_t _Fork() noexcept {
  static const auto own = Find<decltype(&_Fork)>("_Fork");
  return own != nullptr ? own() : fork();
}

// Added in glibc 2.32.
const char* sigabbrev_np(int number) noexcept {
  static const auto own = Find<decltype(&sigabbrev_np)>("sigabbrev_np");
  if (own != nullptr) return own(number);
  static constexpr const char* kNames[] = {
      nullptr, "HUP",  "INT",  "QUIT", "ILL",    "TRAP",   "ABRT",  "BUS",  "FPE",  "KILL", "USR1",
      "SEGV",  "USR2", "PIPE", "ALRM", "TERM",   "STKFLT", "CHLD",  "CONT", "STOP", "TSTP", "TTIN",
      "TTOU",  "URG",  "XCPU", "XFSZ", "VTALRM", "PROF",   "WINCH", "POLL", "PWR",  "SYS"};
  return number > 0 && number < static_cast<int>(sizeof kNames / sizeof *kNames) ? kNames[number]
                                                                                 : nullptr;
}

// Added in glibc 2.36, and used by c-ares. As in glibc, the process aborts if there are no random
// numbers.
uint32_t arc4random() noexcept {
  uint32_t number = 0;
  if (getentropy(&number, sizeof number) != 0) abort();
  return number;
}
void arc4random_buf(void* buffer, size_t bytes) noexcept {
  constexpr size_t kMaxBytes = 256;  // limit of one call of getentropy
  for (auto* at = static_cast<char*>(buffer); bytes > 0;) {
    const size_t part = bytes < kMaxBytes ? bytes : kMaxBytes;
    if (getentropy(at, part) != 0) abort();
    at += part;
    bytes -= part;
  }
}

// glibc 2.38, whose headers replace strtol and similar functions by these. The new functions also
// accept "0b1" if the base is 0 or 2, which no code here needs.
#define READS_A_NUMBER(Type, name)                                        \
  Type Before_##name(const char*, char**, int) noexcept __asm__(#name);   \
  Type __isoc23_##name(const char* text, char** end, int base) noexcept { \
    return Before_##name(text, end, base);                                \
  }
READS_A_NUMBER(long, strtol)
READS_A_NUMBER(long long, strtoll)
READS_A_NUMBER(unsigned long, strtoul)
READS_A_NUMBER(unsigned long long, strtoull)
#undef READS_A_NUMBER
int BeforeVsscanf(const char*, const char*, va_list) noexcept __asm__("__isoc99_vsscanf");
int __isoc23_sscanf(const char* text, const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  const int read = BeforeVsscanf(text, format, arguments);
  va_end(arguments);
  return read;
}

// Added in glibc 2.35, and used by the unwinder of libgcc. The unwinder stops searching if this
// function fails.
int _dl_find_object(void* address, dl_find_object* found) noexcept {
  ObjectSearch search{reinterpret_cast<uintptr_t>(address), found};
  return dl_iterate_phdr(VisitObject, &search) == 1 ? 0 : -1;
}

}  // extern "C"
