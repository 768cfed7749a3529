// Reads the C and C++ frames of a process in a forked child of the supervisor. Reading files of the
// program may take long, need much memory, or crash the reader, so the supervisor does not read
// them itself.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/stacks.pb.h"

namespace dslaunch {

// Finds the C and C++ frames of threads, with one child process for each request. Used on the
// loop's thread, in a process with one thread.
class FrameHelper {
 public:
  // Time limit from Begin() to the answer.
  static constexpr milliseconds kLimit{500};
  // Time limit for stopping a running thread to copy its stack, which usually takes less than 0.1
  // ms.
  static constexpr milliseconds kStopLimit{20};
  static constexpr size_t kMaxThreads = 64;

  // Receives the frames of the process. Each thread has only `tid` and `frames`. If the frames
  // could not be read, there are no threads and `no_native` is the reason.
  using Done = std::function<void(pb::ProcessStacks frames)>;

  explicit FrameHelper(asio::io_context& loop) : loop_(loop) {}

  // Copies the stacks of those threads in `tids` that wait in the kernel, and starts the child,
  // which copies the stacks of running threads. Ignores all but the first kMaxThreads threads.
  // Calls `done` once, never from inside this call.
  void Begin(pid_t pid, std::vector<pid_t> tids, Done done);

 private:
  struct Run;

  static void Read(std::shared_ptr<Run> run);
  static void Finish(Run& run, const std::string& problem);

  asio::io_context& loop_;
};

}  // namespace dslaunch
