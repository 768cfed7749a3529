// Answers Look: what the threads of a worker and of its descendants do. The supervisor reads them
// because it is their ancestor: even a kernel that restricts ptrace (Yama) lets it read their
// memory.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/frames/frame_helper.h"
#include "agent/stacks/process_stacks.h"
#include "base/os/process_tree.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// Returns the message for the stacks of one process. `ticks_per_s`: the kernel's clock rate. Pure.
pb::ProcessStacks ToMessage(const ProcessStacks& stacks, long ticks_per_s);

// Reads one process in each turn of the loop, so that the supervisor's other work is not delayed by
// more than a few milliseconds. Child processes read the frames of C and C++ meanwhile. Used on the
// loop's thread.
class RankLooks {
 public:
  using OnLooked = std::function<void(const pb::SupervisorEvent&)>;

  RankLooks(asio::io_context& loop, OnLooked on_looked)
      : loop_(loop), on_looked_(std::move(on_looked)), frames_(loop) {}

  // Queues a look at the worker whose process is `pid`, or nullopt if it does not run. on_looked is
  // called once, never from inside this call.
  void Begin(const pb::Look& look, std::optional<pid_t> pid);
  // Answers the queued looks at once, which takes at most 100 ms. Call it before the workers get a
  // signal, which changes what they do. Leaves out frames of C and C++ that are not read yet. Calls
  // on_looked.
  void FinishQueued();

 private:
  struct Running {
    pb::Look look;
    std::optional<pid_t> pid;
    std::optional<std::deque<ProcessInfo>> left;  // processes to read; nullopt if not listed yet
    pb::RankStacks stacks;
    uint64_t signature = 0;
    bool no_signature = false;  // true if the memory of a process cannot be compared
    int helpers = 0;            // number of processes whose frames are being read
    bool answered = false;
  };

  void PostTurn();
  void Turn();  // precondition: a look is queued
  void List(Running& running);
  void ReadNext(const std::shared_ptr<Running>& running);
  // Starts to read the frames of C and C++ of the process that was read last. They are added to its
  // threads.
  void ReadFrames(const std::shared_ptr<Running>& running);
  void Answer(Running& running);

  asio::io_context& loop_;
  const OnLooked on_looked_;
  StackReader reader_;
  FrameHelper frames_;
  std::deque<std::shared_ptr<Running>> queue_;
  std::vector<std::weak_ptr<Running>> awaited_;  // looks that wait for frames
  bool is_posted_ = false;                       // true if a turn is posted
};

}  // namespace dslaunch
