// Reads what the threads of one process do, in the kernel and in Python.
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
  ThreadState kernel = {};  // `tid` is 0 and `state` '?' if the tid of the thread is unknown
  // Signature of the Python frames, or else a hash of the thread's state in the kernel.
  PythonThread python = {};  // without frames if the thread has none, or they were not read
  uint64_t signature = 0;
};

struct ProcessStacks {
  ProcessId id = {};
  std::string command = {};
  std::string python = {};                // version, such as "3.11", if Python stacks were read
  std::string no_python = {};             // why the stacks of a Python process were not read
  std::vector<ThreadStack> threads = {};  // threads, the main thread first
  bool torn = false;
  bool cut = false;
};

// Returns why the kernel refuses to let an ancestor read a process's memory, by the content of
// /proc/sys/kernel/yama/ptrace_scope; `ptrace_scope` is empty if there is no such file. With scope
// 0 and 1, the kernel lets an ancestor of the same user read, so the program must have other rights
// than its user. Pure.
std::string ReadRefusal(std::string_view ptrace_scope);

// Reads processes without stopping them and without opening any of their files. Remembers where the
// interpreter of each process is, so that a process whose file server has failed can be read later.
class StackReader {
 public:
  explicit StackReader(const ReadLimits& limits = {}) : limits_(limits) {}

  // Returns the stacks; nullopt if the process has ended, or has executed another program
  // meanwhile.
  std::optional<ProcessStacks> Read(const ProcessInfo& process);

  // Forgets the processes that have ended.
  void ForgetEnded();

 private:
  struct Known {
    uint64_t start_ticks = 0;
    std::string executable;  // target of /proc/PID/exe
    std::optional<PythonLayout> layout;
  };

  void ReadPython(ProcessStacks& stacks, const ThreadStates& states);

  const ReadLimits limits_;
  std::map<pid_t, Known> known_;
};

}  // namespace dslaunch
