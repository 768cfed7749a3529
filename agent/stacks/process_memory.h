// Reads the memory of a running process, without stopping or tracing the process.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "agent/stacks/memory_reader.h"
#include "base/deadline.h"

namespace dslaunch {

// The limits of all reads from one process.
struct ReadLimits {
  size_t bytes = size_t{1} << 20;
  std::chrono::microseconds cpu_time{5'000};  // CPU time of the calling thread
};

class ProcessMemory final : public MemoryReader {
 public:
  explicit ProcessMemory(pid_t pid, const ReadLimits& limits = {});

  bool Read(uint64_t address, std::span<std::byte> out) override;

  // Returns whether a limit was reached, so that every further Read() fails.
  bool exhausted() const { return exhausted_; }

  // Returns whether the kernel refused access to the process's memory (EPERM).
  bool refused() const { return refused_; }

 private:
  const pid_t pid_;
  size_t bytes_left_;
  const std::chrono::microseconds cpu_end_;
  unsigned reads_ = 0;
  bool exhausted_ = false;
  bool refused_ = false;
};

}  // namespace dslaunch
