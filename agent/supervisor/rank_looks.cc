#include "agent/supervisor/rank_looks.h"

#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <chrono>
#include <utility>

#include "agent/stacks/shared_memory.h"
#include "base/text/sanitize.h"
#include "proto/wire/rank_stacks.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxQueued = 4096;  // limit of queued looks, more than a node has ranks
constexpr std::chrono::milliseconds kMostDelay{100};
// Limit of the shared memory of a process that is compared.
constexpr size_t kMaxSharedBytes = size_t{32} << 20;
constexpr int kMaxHelpers = 4;  // limit of the processes of a rank whose C and C++ frames are read

uint64_t Combine(uint64_t hash, uint64_t value) {
  constexpr uint64_t kPrime = 0x100000001b3;
  return (hash ^ value) * kPrime + (hash >> 32);
}

// Adds the frames in `frames` to the threads of `process`.
void AddFrames(pb::ProcessStacks& frames, pb::ProcessStacks& process) {
  process.set_no_native(frames.no_native());
  for (pb::ThreadStack& read : *frames.mutable_threads()) {
    const auto thread =
        std::ranges::find(*process.mutable_threads(), read.tid(), &pb::ThreadStack::tid);
    if (thread != process.mutable_threads()->end())
      thread->mutable_frames()->Swap(read.mutable_frames());
  }
}

}  // namespace

pb::ProcessStacks ToMessage(const ProcessStacks& stacks, long ticks_per_s) {
  pb::ProcessStacks message;
  message.set_pid(stacks.id.pid);
  message.set_command(stacks.command);
  message.set_python(stacks.python);
  // A string field that is not UTF-8 would make the whole message invalid, so texts are sanitized.
  message.set_no_python(SanitizeForTerminal(stacks.no_python));
  message.set_torn(stacks.torn);
  message.set_cut(stacks.cut);
  constexpr uint64_t kMicroseconds = 1'000'000;
  for (const ThreadStack& stack : stacks.threads) {
    pb::ThreadStack& thread = *message.add_threads();
    thread.set_tid(stack.kernel.tid);
    thread.set_name(stack.kernel.name);
    if (stack.kernel.state != '?') thread.set_state(std::string(1, stack.kernel.state));
    thread.set_call(stack.kernel.call);
    thread.set_target(SanitizeForTerminal(stack.kernel.target));
    thread.set_waits_in(SanitizeForTerminal(stack.kernel.waits_in));
    thread.set_cpu_us(stack.kernel.ticks * kMicroseconds / static_cast<uint64_t>(ticks_per_s));
    thread.set_has_gil(stack.python.has_gil);
    thread.set_signature(stack.signature);
    for (const PythonFrame& frame : stack.python.frames) {
      pb::StackFrame& added = *thread.add_frames();
      added.set_function(frame.function);
      added.set_file(frame.file);
      added.set_line(frame.line);
    }
  }
  return message;
}

void RankLooks::Begin(const pb::Look& look, std::optional<pid_t> pid) {
  if (queue_.size() == kMaxQueued) {
    asio::post(loop_, [this, look] {
      pb::SupervisorEvent event;
      event.mutable_looked()->set_number(look.number());
      event.mutable_looked()->set_local_rank(look.local_rank());
      event.mutable_looked()->mutable_stacks()->set_trouble("too many looks are waiting");
      on_looked_(event);
    });
    return;
  }
  queue_.push_back(
      std::make_shared<Running>(Running{.look = look, .pid = pid, .left = {}, .stacks = {}}));
  PostTurn();
}

void RankLooks::FinishQueued() {
  const auto end = std::chrono::steady_clock::now() + kMostDelay;
  while (!queue_.empty() && std::chrono::steady_clock::now() < end) Turn();
  for (const std::weak_ptr<Running>& awaited : std::exchange(awaited_, {})) {
    if (const std::shared_ptr<Running> running = awaited.lock()) Answer(*running);
  }
}

void RankLooks::PostTurn() {
  if (std::exchange(is_posted_, true)) return;
  asio::post(loop_, [this] {
    is_posted_ = false;
    if (queue_.empty()) return;
    Turn();
    if (!queue_.empty()) PostTurn();
  });
}

void RankLooks::Turn() {
  const std::shared_ptr<Running> running = queue_.front();
  if (!running->left) return List(*running);
  if (!running->left->empty()) return ReadNext(running);
  queue_.pop_front();
  if (queue_.empty()) reader_.ForgetEnded();
  if (running->helpers == 0) return Answer(*running);
  std::erase_if(awaited_, [](const std::weak_ptr<Running>& entry) { return entry.expired(); });
  awaited_.push_back(running);
}

void RankLooks::List(Running& running) {
  running.left.emplace();
  if (!running.pid) {
    running.stacks.set_trouble("the rank does not run");
    return;
  }
  if (std::optional<ProcessInfo> own = ReadProcess(*running.pid))
    running.left->push_back(*std::move(own));
  for (ProcessInfo& info : Descendants(*running.pid, {})) {
    if (running.left->size() == static_cast<size_t>(kMaxStackProcesses)) {
      running.stacks.set_cut(true);
      break;
    }
    running.left->push_back(std::move(info));
  }
}

void RankLooks::ReadNext(const std::shared_ptr<Running>& running) {
  const ProcessInfo process = std::move(running->left->front());
  running->left->pop_front();
  if (running->look.shared_memory() && !running->look.full()) {
    const uint64_t digest = DigestOfSharedMemory(process.id.pid, kMaxSharedBytes);
    running->no_signature |= digest == 0;
    running->signature = Combine(running->signature, digest);
    return;
  }
  const std::optional<ProcessStacks> stacks = reader_.Read(process);
  if (!stacks) return;
  for (const ThreadStack& thread : stacks->threads)
    running->signature = Combine(running->signature, thread.signature);
  if (!running->look.full()) return;
  static const long ticks_per_s = sysconf(_SC_CLK_TCK);
  *running->stacks.add_processes() = ToMessage(*stacks, ticks_per_s);
  if (running->look.native() && running->helpers < kMaxHelpers && stacks->python.empty() &&
      stacks->no_python.empty())
    ReadFrames(running);
}

void RankLooks::ReadFrames(const std::shared_ptr<Running>& running) {
  const int index = running->stacks.processes_size() - 1;
  const pb::ProcessStacks& process = running->stacks.processes(index);
  std::vector<pid_t> tids;
  for (const pb::ThreadStack& thread : process.threads()) {
    if (thread.state() == "S" || thread.state() == "R") tids.push_back(thread.tid());
  }
  // No thread can be read, because the process is stopped or waits for its memory.
  if (tids.empty()) return;
  ++running->helpers;
  frames_.Begin(process.pid(), std::move(tids), [this, running, index](pb::ProcessStacks frames) {
    if (running->answered) return;
    AddFrames(frames, *running->stacks.mutable_processes(index));
    const bool is_queued = std::ranges::count(queue_, running) > 0;
    if (--running->helpers == 0 && !is_queued) Answer(*running);
  });
}

void RankLooks::Answer(Running& running) {
  if (std::exchange(running.answered, true)) return;
  pb::SupervisorEvent event;
  pb::Looked& looked = *event.mutable_looked();
  looked.set_number(running.look.number());
  looked.set_local_rank(running.look.local_rank());
  running.stacks.set_signature(running.no_signature ? 0 : running.signature);
  CutRankStacks(running.stacks);
  *looked.mutable_stacks() = std::move(running.stacks);
  on_looked_(event);
}

}  // namespace dslaunch
