// Answers requests to look at a worker with the stacks of its threads and of its descendants'
// threads. Even a kernel that restricts ptrace (Yama) lets an ancestor read the memory of these
// processes, so the supervisor reads it.
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

// Returns the message for the stacks of one process. `ticks_per_s` is the kernel's clock rate.
// Pure.
pb::ProcessStacks ToMessage(const ProcessStacks& stacks, long ticks_per_s);

// Reads the stacks of workers, one process in each turn of the loop, so that the supervisor's other
// work is not delayed by more than a few milliseconds. Child processes read the C and C++ frames
// meanwhile. Used on the loop's thread.
class RankLooks {
 public:
  using OnLooked = std::function<void(const pb::SupervisorEvent&)>;

  RankLooks(asio::io_context& loop, OnLooked on_looked)
      : loop_(loop), on_looked_(std::move(on_looked)), frames_(loop) {}

  // Queues a look at the worker whose process is `pid`; nullopt if the worker does not run. Calls
  // on_looked once, never from inside this call.
  void Begin(const pb::Look& look, std::optional<pid_t> pid);
  // Answers the queued looks at once, which takes at most 100 ms. A signal changes what the workers
  // do, so call this before the workers get one. Omits C and C++ frames that are not read yet.
  // Calls on_looked.
  void FinishQueued();

 private:
  struct Running {
    pb::Look look;
    std::optional<pid_t> pid;
    // Processes to read; nullopt before they are listed.
    std::optional<std::deque<ProcessInfo>> left;
    pb::RankStacks stacks;
    uint64_t signature = 0;
    bool no_signature = false;  // whether the memory of some process cannot be compared
    int helpers = 0;            // number of processes whose frames are being read
    bool answered = false;
  };

  void PostTurn();
  // Reads one process of the first queued look. Precondition: a look is queued.
  void Turn();
  void List(Running& running);
  void ReadNext(const std::shared_ptr<Running>& running);
  // Begins to read the C and C++ frames of the process that was read last, and to add them to its
  // threads.
  void ReadFrames(const std::shared_ptr<Running>& running);
  void Answer(Running& running);

  asio::io_context& loop_;
  const OnLooked on_looked_;
  StackReader reader_;
  FrameHelper frames_;
  std::deque<std::shared_ptr<Running>> queue_;
  std::vector<std::weak_ptr<Running>> awaited_;  // looks that wait for C and C++ frames
  bool is_posted_ = false;                       // whether a call of Turn() is posted
};

}  // namespace dslaunch
