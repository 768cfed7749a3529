// Puts operations into streams, or into a graph that is being recorded.
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/support/standin_gpu/memory.h"
#include "tests/support/standin_gpu/streams.h"

namespace dslaunch::standin {

struct Launch {
  const char* name;  // valid for the life of the process
  std::vector<Touch> touches;
  // Runs in the stream's thread. Gets memory by KernelAddress, and owns no tensor of the device.
  std::function<void(uint64_t seed)> kernel;
  // Returns the seed for `kernel` when it is enqueued, also for each replay of a graph. May be
  // empty.
  std::function<uint64_t()> draw = {};
};

// Throws c10::Error for an earlier kernel's error. Ends the process if a touch is not ordered after
// other streams' use of the same memory.
void Enqueue(const c10::Stream& stream, Launch launch);

// An event after the work that `stream` has so far, and a wait of `stream` for an event. A graph is
// one sequence, so neither does anything while a graph is recorded.
std::shared_ptr<EventMark> MarkStream(const c10::Stream& stream);
void LetStreamWait(const c10::Stream& stream, const std::shared_ptr<EventMark>& event);
// Returns whether the event is done; then the host's later work is ordered after it.
bool QueryEvent(const EventMark& event);

// Makes the host wait. `hidden`: the wait is part of an operation that computes or copies, not of
// an explicit synchronization. Throws c10::Error if a graph is being recorded, or STANDIN_NO_SYNC
// forbids the wait.
void SynchronizeStream(const c10::Stream& stream, const char* why, bool hidden);
// Checks that both kinds of waits share.
void CheckMayWait(const char* why, bool hidden);

// Operations that are recorded when they are enqueued, and run later as a whole.
class Graph {
 public:
  // Records all operations that any thread enqueues in any stream until EndRecording. Only one
  // graph at a time can be recorded.
  void BeginRecording();
  void EndRecording();
  void Clear() { launches_.clear(); }
  // Runs the graph in the order of `stream`.
  void Replay(const c10::Stream& stream);

 private:
  friend void Enqueue(const c10::Stream& stream, Launch launch);
  GraphMemory memory_;
  std::vector<Launch> launches_;
};
bool IsRecording();

}  // namespace dslaunch::standin
