// How operations get into streams, or into a graph that is being recorded.
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/support/standin_gpu/memory.h"
#include "tests/support/standin_gpu/streams.h"

namespace dslaunch::standin {

struct Launch {
  const char* name;  // lives as long as the process
  std::vector<Touch> touches;
  // Runs in the stream's thread. Finds memory by KernelAddress; owns no tensor of the device.
  std::function<void(uint64_t seed)> kernel;
  // Gives the seed for `kernel` when it is enqueued, for each replay of a graph too. May be empty.
  std::function<uint64_t()> draw = {};
};

// Throws c10::Error for an earlier kernel's error. Ends the process where a touch is not ordered
// after what other streams do with the same memory.
void Enqueue(const c10::Stream& stream, Launch launch);

// An event behind what `stream` has so far, and a wait of `stream` for one. In a graph all is in
// one row, so that neither does anything while one is recorded.
std::shared_ptr<EventMark> MarkStream(const c10::Stream& stream);
void LetStreamWait(const c10::Stream& stream, const std::shared_ptr<EventMark>& event);
// Whether it is done; then what the host does from here on is after it.
bool QueryEvent(const EventMark& event);

// The host waits. `hidden`: by an operation that computes or copies, and not by a call that says
// so. Throws c10::Error where a graph is recorded, or STANDIN_NO_SYNC forbids it.
void SynchronizeStream(const c10::Stream& stream, const char* why, bool hidden);
// The part that both kinds of waits have in common.
void CheckMayWait(const char* why, bool hidden);

// Operations that are kept when they are enqueued, and done later, in one piece.
class Graph {
 public:
  // Records from here to EndRecording what any thread enqueues, in any stream. One at a time.
  void BeginRecording();
  void EndRecording();
  void Clear() { launches_.clear(); }
  // In the order of `stream`.
  void Replay(const c10::Stream& stream);

 private:
  friend void Enqueue(const c10::Stream& stream, Launch launch);
  GraphMemory memory_;
  std::vector<Launch> launches_;
};
bool IsRecording();

}  // namespace dslaunch::standin
