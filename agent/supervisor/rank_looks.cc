#include "agent/supervisor/rank_looks.h"

#include <unistd.h>

#include <asio/post.hpp>
#include <chrono>
#include <utility>

#include "base/text/sanitize.h"
#include "proto/wire/rank_stacks.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxQueued = 4096;  // looks; the ranks of a node are fewer
constexpr std::chrono::milliseconds kMostDelay{100};

uint64_t Combine(uint64_t hash, uint64_t value) {
  constexpr uint64_t kPrime = 0x100000001b3;
  return (hash ^ value) * kPrime + (hash >> 32);
}

}  // namespace

pb::ProcessStacks ToMessage(const ProcessStacks& stacks, long ticks_per_s) {
  pb::ProcessStacks message;
  message.set_pid(stacks.id.pid);
  message.set_command(stacks.command);
  message.set_python(stacks.python);
  // A string field that is not UTF-8 would make the whole message invalid.
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
  queue_.push_back({.look = look, .pid = pid, .left = {}, .stacks = {}});
  PostTurn();
}

void RankLooks::FinishQueued() {
  const auto end = std::chrono::steady_clock::now() + kMostDelay;
  while (!queue_.empty() && std::chrono::steady_clock::now() < end) Turn();
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
  Running& running = queue_.front();
  if (!running.left)
    List(running);
  else if (!running.left->empty())
    ReadNext(running);
  else
    Finish();
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

void RankLooks::ReadNext(Running& running) {
  const ProcessInfo process = std::move(running.left->front());
  running.left->pop_front();
  const std::optional<ProcessStacks> stacks = reader_.Read(process);
  if (!stacks) return;
  for (const ThreadStack& thread : stacks->threads)
    running.signature = Combine(running.signature, thread.signature);
  if (running.look.full()) {
    static const long ticks_per_s = sysconf(_SC_CLK_TCK);
    *running.stacks.add_processes() = ToMessage(*stacks, ticks_per_s);
  }
}

void RankLooks::Finish() {
  Running running = std::move(queue_.front());
  queue_.pop_front();
  if (queue_.empty()) reader_.ForgetEnded();
  pb::SupervisorEvent event;
  pb::Looked& looked = *event.mutable_looked();
  looked.set_number(running.look.number());
  looked.set_local_rank(running.look.local_rank());
  running.stacks.set_signature(running.signature);
  CutRankStacks(running.stacks);
  *looked.mutable_stacks() = std::move(running.stacks);
  on_looked_(event);
}

}  // namespace dslaunch
