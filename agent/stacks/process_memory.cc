#include "agent/stacks/process_memory.h"

#include <sys/uio.h>

#include <cerrno>
#include <ctime>

namespace dslaunch {
namespace {

std::chrono::microseconds CpuTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

}  // namespace

ProcessMemory::ProcessMemory(pid_t pid, const ReadLimits& limits)
    : pid_(pid), bytes_left_(limits.bytes), cpu_end_(CpuTime() + limits.cpu_time) {}

bool ProcessMemory::Read(uint64_t address, std::span<std::byte> out) {
  if (exhausted_ || refused_) return false;
  // Reading the clock costs as much as a read of memory, so the time is not checked at every read.
  constexpr unsigned kReadsPerCheck = 16;
  if (out.size() > bytes_left_ || (reads_++ % kReadsPerCheck == 0 && CpuTime() > cpu_end_)) {
    exhausted_ = true;
    return false;
  }
  bytes_left_ -= out.size();
  const iovec local = {out.data(), out.size()};
  const iovec remote = {reinterpret_cast<void*>(address), out.size()};  // NOLINT: another process'
  const ssize_t read = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
  if (read < 0 && errno == EPERM) refused_ = true;
  return read == static_cast<ssize_t>(out.size());
}

}  // namespace dslaunch
