#include "agent/frames/stack_snapshot.h"

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <string>

#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

constexpr size_t kPage = 4096;

std::optional<uint64_t> ReadHex(std::string_view word) {
  constexpr int kHex = 16;
  if (!word.starts_with("0x")) return std::nullopt;
  word.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value, kHex);
  if (status != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// Returns up to kMaxSnapshotBytes from `address` on, as far as the memory is mapped.
std::vector<std::byte> ReadStack(pid_t pid, uint64_t address) {
  std::vector<std::byte> stack(kMaxSnapshotBytes);
  std::array<iovec, kMaxSnapshotBytes / kPage + 1> pages;
  size_t count = 0;
  uint64_t next = address;
  const uint64_t end = address + kMaxSnapshotBytes;
  // The kernel skips an element that is not fully mapped, so each page is an element of its own.
  while (next < end && count < pages.size()) {
    const uint64_t page_end = std::min<uint64_t>(end, (next / kPage + 1) * kPage);
    pages[count++] = {reinterpret_cast<void*>(next), page_end - next};
    next = page_end;
  }
  iovec local = {stack.data(), stack.size()};
  const ssize_t got = process_vm_readv(pid, &local, 1, pages.data(), count, 0);
  stack.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return stack;
}

#if defined(__x86_64__)
// Returns the kernel's registers under their DWARF numbers.
Registers FromUser(const user_regs_struct& user) {
  Registers registers = {.pc = user.rip, .sp = user.rsp};
  const uint64_t numbered[] = {user.rax, user.rdx, user.rcx, user.rbx, user.rsi, user.rdi,
                               user.rbp, user.rsp, user.r8,  user.r9,  user.r10, user.r11,
                               user.r12, user.r13, user.r14, user.r15, user.rip};
  std::ranges::copy(numbered, registers.values.begin());
  return registers;
}
constexpr size_t kSpNumber = 7;
constexpr std::optional<size_t> kPcNumber = 16;
#elif defined(__aarch64__)
Registers FromUser(const user_regs_struct& user) {
  Registers registers = {.pc = user.pc, .sp = user.sp};
  std::copy(std::begin(user.regs), std::end(user.regs), registers.values.begin());
  registers.values[31] = user.sp;
  return registers;
}
constexpr size_t kSpNumber = 31;
constexpr std::optional<size_t> kPcNumber = std::nullopt;
#else
#error "no table of registers for this processor"
#endif

// Waits until the thread is stopped for this tracer. Returns false on timeout or if the thread has
// ended.
bool AwaitStop(pid_t tid, const Deadline& deadline) {
  constexpr timespec kPause = {0, 50'000};
  while (true) {
    int status = 0;
    const pid_t waited = waitpid(tid, &status, __WALL | WNOHANG);
    if (waited == tid) return WIFSTOPPED(status);
    if (waited < 0 || deadline.Expired()) return false;
    nanosleep(&kPause, nullptr);
  }
}

}  // namespace

std::optional<Registers> ParseWaitingRegisters(std::string_view syscall_text) {
  std::string_view line = TakeLine(syscall_text);
  std::vector<std::string_view> words;
  constexpr size_t kMostWords = 9;  // words: number of the call, six arguments, sp, pc
  while (!line.empty() && words.size() <= kMostWords) {
    const std::string_view word = TakeWord(line);
    if (!word.empty()) words.push_back(word);
  }
  if (words.size() != 3 && words.size() != kMostWords) return std::nullopt;
  const auto sp = ReadHex(words[words.size() - 2]);
  const auto pc = ReadHex(words.back());
  if (!sp || !pc || *sp == 0 || *pc == 0) return std::nullopt;
  Registers registers = {.pc = *pc, .sp = *sp};
  registers.values[kSpNumber] = *sp;
  if (kPcNumber) registers.values[*kPcNumber] = *pc;
  return registers;
}

std::vector<StackSnapshot> CopyWaitingStacks(pid_t pid, const std::vector<pid_t>& tids,
                                             std::vector<pid_t>& running) {
  std::vector<StackSnapshot> snapshots;
  for (const pid_t tid : tids) {
    const std::string path =
        "/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/syscall";
    const std::string text = ReadWhole(path).value_or("");
    const std::optional<Registers> registers = ParseWaitingRegisters(text);
    if (!registers) {
      if (text.starts_with("running")) running.push_back(tid);
      continue;
    }
    StackSnapshot snapshot = {.tid = tid, .registers = *registers};
    snapshot.stack = ReadStack(pid, registers->sp);
    // The copy may mix two states of the stack if the thread has moved meanwhile, so such a copy is
    // dropped.
    if (ReadWhole(path).value_or("") == text) snapshots.push_back(std::move(snapshot));
  }
  return snapshots;
}

std::optional<StackSnapshot> CopyRunningStack(pid_t pid, pid_t tid, milliseconds limit) {
  // PTRACE_SEIZE sends no signal to the thread, so the program does not notice it.
  // PTRACE_O_EXITKILL is not set, so the thread survives its tracer.
  if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) return std::nullopt;
  std::optional<StackSnapshot> snapshot;
  if (ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) == 0 &&
      AwaitStop(tid, Deadline::After(limit))) {
    user_regs_struct user = {};
    iovec data = {&user, sizeof user};
    if (ptrace(PTRACE_GETREGSET, tid, reinterpret_cast<void*>(NT_PRSTATUS), &data) == 0) {
      snapshot = StackSnapshot{.tid = tid, .registers = FromUser(user)};
      snapshot->stack = ReadStack(pid, snapshot->registers.sp);
    }
  }
  ptrace(PTRACE_DETACH, tid, nullptr, nullptr);
  return snapshot;
}

}  // namespace dslaunch
