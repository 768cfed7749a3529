// Reads the activity of the threads of one process, in the kernel and in Python.
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
  ThreadState kernel = {};   // `tid` is 0 and `state` '?' for a Python thread without a known tid
  PythonThread python = {};  // without frames: no Python thread, or not read
  uint64_t signature =
      0;  // signature of the Python frames, or else a hash of the state in the kernel
};

struct ProcessStacks {
  ProcessId id = {};
  std::string command = {};
  std::string python = {};                // "3.11" if Python stacks were read
  std::string no_python = {};             // why the stacks of a Python process were not read
  std::vector<ThreadStack> threads = {};  // the main thread is the first
  bool torn = false;
  bool cut = false;
};

// Returns why the kernel refuses to let an ancestor read a process' memory, by the content of
// /proc/sys/kernel/yama/ptrace_scope; empty: there is no such file. With scope 0 and 1 it lets an
// ancestor of the same user read, so the program has other rights than its user. Pure.
std::string ReadRefusal(std::string_view ptrace_scope);

// Reads processes without stopping them and without opening any file of theirs. Keeps where the
// interpreter of each process is, so that a process whose files are on a dead file server can be
// read later.
class StackReader {
 public:
  explicit StackReader(const ReadLimits& limits = {}) : limits_(limits) {}

  // Returns nullopt if the process has ended, or has executed another program meanwhile.
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
