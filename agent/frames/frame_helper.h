// Reads the frames of C and C++ of a process in a forked child of the supervisor, because the
// program's files decide how long that takes, how much memory, and whether it crashes.
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

// On the loop's thread, in a process with one thread.
class FrameHelper {
 public:
  // From Begin to the answer. Copying the stack of a running thread stops it for at most
  // kStopLimit, and usually for less than 0.1 ms.
  static constexpr milliseconds kLimit{500};
  static constexpr milliseconds kStopLimit{20};
  static constexpr size_t kMaxThreads = 64;

  // `frames`: threads with their tid and frames, and no_native; nothing else is set.
  using Done = std::function<void(pb::ProcessStacks frames)>;

  explicit FrameHelper(asio::io_context& loop) : loop_(loop) {}

  // Copies the stacks of the waiting threads of `tids` and starts the child, which copies the other
  // stacks. Calls `done` once, never from inside this call.
  void Begin(pid_t pid, std::vector<pid_t> tids, Done done);

 private:
  struct Run;

  static void Read(std::shared_ptr<Run> run);
  static void Finish(Run& run, const std::string& problem);

  asio::io_context& loop_;
};

}  // namespace dslaunch
