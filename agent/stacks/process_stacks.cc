#include "agent/stacks/process_stacks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxMappings = 20'000;

// Returns the target of the link /proc/PID/exe; empty if it cannot be read.
std::string ReadExecutable(pid_t pid) {
  std::array<char, 4096> link;
  const std::string path = "/proc/" + std::to_string(pid) + "/exe";
  const ssize_t length = readlink(path.c_str(), link.data(), link.size());
  return length > 0 ? std::string(link.data(), static_cast<size_t>(length)) : "";
}

// Returns the layout of a process's interpreter. Returns nullopt, with the reason in `refusal`, if
// the interpreter cannot be read; for programs other than Python, `refusal` stays empty.
std::optional<PythonLayout> ReadLayout(pid_t pid, ProcessMemory& memory, std::string& refusal) {
  const std::vector<FileMapping> maps =
      ParseMaps(ReadWhole("/proc/" + std::to_string(pid) + "/maps").value_or(""), kMaxMappings);
  Result<std::optional<PythonLayout>> layout = FindLayout(maps, memory);
  if (memory.refused())
    refusal = ReadRefusal(ReadWhole("/proc/sys/kernel/yama/ptrace_scope").value_or(""));
  else if (!layout.ok())
    refusal = layout.error().message;
  return layout.ok() ? *layout : std::nullopt;
}

uint64_t KernelSignature(const ThreadState& state) {
  return std::hash<std::string>()(state.state + state.call + '\n' + state.target + '\n' +
                                  state.waits_in);
}

// Adds to each kernel thread its Python stack. Appends Python threads whose tid is unknown.
void Merge(ProcessStacks& stacks, const std::vector<ThreadState>& kernel, PythonStacks python) {
  for (const ThreadState& state : kernel) stacks.threads.push_back({.kernel = state});
  for (PythonThread& thread : python.threads) {
    const auto same = std::ranges::find_if(stacks.threads, [&](const ThreadStack& stack) {
      return thread.tid > 0 && stack.kernel.tid == thread.tid;
    });
    if (same != stacks.threads.end())
      same->python = std::move(thread);
    else
      stacks.threads.push_back({.python = std::move(thread)});
  }
  for (ThreadStack& thread : stacks.threads) {
    thread.signature =
        thread.python.frames.empty() ? KernelSignature(thread.kernel) : thread.python.signature;
  }
}

}  // namespace

std::string ReadRefusal(std::string_view ptrace_scope) {
  const std::string_view scope = TakeWord(ptrace_scope);
  const std::string refused = "the kernel does not let dslaunch read its memory: ";
  if (scope.starts_with('2')) return refused + "kernel.yama.ptrace_scope is 2, so only root may";
  if (scope.starts_with('3')) return refused + "kernel.yama.ptrace_scope is 3, so no process may";
  return refused + "it has other rights than its user, as a program with set-user-ID has";
}

std::optional<ProcessStacks> StackReader::Read(const ProcessInfo& process) {
  ProcessStacks stacks = {.id = process.id, .command = process.command};
  const ThreadStates states = ReadThreadStates(process.id.pid, kMaxReadThreads);
  if (states.threads.empty()) return std::nullopt;
  stacks.cut = states.cut;
  ReadPython(stacks, states);
  const std::optional<ProcessInfo> after = ReadProcess(process.id.pid);
  if (!after || after->id != process.id) return std::nullopt;
  return stacks;
}

void StackReader::ReadPython(ProcessStacks& stacks, const ThreadStates& states) {
  if (states.waits_for_memory) {
    stacks.no_python = "a thread waits for its memory in the kernel";
    return Merge(stacks, states.threads, {});
  }
  const pid_t pid = stacks.id.pid;
  const std::string executable = ReadExecutable(pid);
  Known& known = known_[pid];
  if (known.start_ticks != stacks.id.start_ticks || known.executable != executable)
    known = {stacks.id.start_ticks, executable, std::nullopt};
  ProcessMemory memory(pid, limits_);
  std::vector<pid_t> tids;
  for (const ThreadState& state : states.threads) tids.push_back(state.tid);
  PythonStacks python;
  const bool was_known = known.layout.has_value();
  if (was_known) python = ReadPythonStacks(memory, *known.layout, tids);
  // A program that has executed itself again has its interpreter at another address, so the layout
  // is searched again.
  if (!was_known || (python.torn && !memory.exhausted())) {
    known.layout = ReadLayout(pid, memory, stacks.no_python);
    if (known.layout) python = ReadPythonStacks(memory, *known.layout, tids);
  }
  if (known.layout) {
    stacks.python = "3." + std::to_string(known.layout->minor);
    stacks.cut = stacks.cut || python.cut || memory.exhausted();
    stacks.torn = python.torn && !memory.exhausted();
  }
  if (ReadExecutable(pid) != executable) python = {};
  Merge(stacks, states.threads, std::move(python));
}

void StackReader::ForgetEnded() {
  std::erase_if(known_, [](const auto& entry) {
    const std::optional<ProcessInfo> process = ReadProcess(entry.first);
    return !process || process->id.start_ticks != entry.second.start_ticks;
  });
}

}  // namespace dslaunch
