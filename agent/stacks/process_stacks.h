// Reads the stacks of the threads of one process, in the kernel and in Python.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/stacks/process_memory.h"
#include "agent/stacks/python_stack.h"
#include "agent/stacks/thread_states.h"
#include "base/os/process_tree.h"

namespace dslaunch {

struct ThreadStack {
  // State in the kernel; `tid` is 0 and `state` '?' if the tid of the thread is unknown.
  ThreadState kernel = {};
  PythonThread python = {};
  // Hash of the Python frames; for a thread without Python frames, of its state in the kernel.
  uint64_t signature = 0;
};

struct ProcessStacks {
  ProcessId id = {};
  std::string command = {};
  std::string python = {};     // Python's version, such as "3.11", if its stacks were read
  std::string no_python = {};  // reason why the stacks of a Python process were not read
  std::vector<ThreadStack> threads = {};  // all threads, the main thread first
  bool torn = false;
  bool cut = false;
};

// Returns the reason why the kernel does not let an ancestor read a process's memory.
// `ptrace_scope` is the content of /proc/sys/kernel/yama/ptrace_scope; empty if there is no such
// file. With scope 0 and 1, the kernel lets an ancestor of the same user read, so the program must
// have other rights than its user. Pure.
std::string ReadRefusal(std::string_view ptrace_scope);

// Reads processes without stopping them and without opening their files. Remembers the
// interpreter's address of each process, so that a process whose file server has failed can still
// be read later.
class StackReader {
 public:
  explicit StackReader(const ReadLimits& limits = {}) : limits_(limits) {}

  // Returns the stacks of a process; nullopt if the process has exited, or has executed another
  // program meanwhile.
  std::optional<ProcessStacks> Read(const ProcessInfo& process);

  // Removes the records of processes that have exited.
  void ForgetEnded();

 private:
  struct Known {
    uint64_t start_ticks = 0;
    std::string executable;  // path of the process's program, from /proc/PID/exe
    std::optional<PythonLayout> layout;
  };

  void ReadPython(ProcessStacks& stacks, const ThreadStates& states);

  const ReadLimits limits_;
  std::map<pid_t, Known> known_;
};

}  // namespace dslaunch
