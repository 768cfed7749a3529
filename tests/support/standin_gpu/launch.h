// Enqueues operations in streams, or in a graph that is being recorded.
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
  // Runs in the stream's thread. Must get addresses from KernelAddress and must not own a tensor of
  // the device.
  std::function<void(uint64_t seed)> kernel;
  // Returns the seed for `kernel`; called when the operation is enqueued and again for each replay
  // of a graph. May be empty.
  std::function<uint64_t()> draw = {};
};

// Appends `launch` to the stream, or to the graph that is being recorded. Throws c10::Error for an
// earlier kernel's error. Ends the process if a touch is not ordered after other streams' use of
// the same memory.
void Enqueue(const c10::Stream& stream, Launch launch);

// Returns an event after the work that `stream` has so far. While a graph is recorded, returns an
// event that is already done, because a graph is one sequence.
std::shared_ptr<EventMark> MarkStream(const c10::Stream& stream);
// Makes `stream` wait for an event. Does nothing while a graph is recorded.
void LetStreamWait(const c10::Stream& stream, const std::shared_ptr<EventMark>& event);
// Returns whether the event is done. If it is, the host's later work is ordered after the event.
bool QueryEvent(const EventMark& event);

// Makes the host wait for `stream`. `hidden` is whether the wait is part of an operation that
// computes or copies, not of an explicit synchronization. Throws c10::Error if a graph is being
// recorded, or if STANDIN_NO_SYNC forbids the wait.
void SynchronizeStream(const c10::Stream& stream, const char* why, bool hidden);
// Throws c10::Error if a graph is being recorded, or if STANDIN_NO_SYNC forbids the wait. Used by
// all waits of the host.
void CheckMayWait(const char* why, bool hidden);

// Records operations when they are enqueued, and runs them later as a whole.
class Graph {
 public:
  // Records all operations that any thread enqueues in any stream until EndRecording. Only one
  // graph can be recorded at a time.
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
