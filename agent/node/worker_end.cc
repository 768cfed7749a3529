#include "agent/node/worker_end.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <utility>

#include "agent/host/failure_evidence.h"
#include "agent/host/oom.h"
#include "agent/host/restart_verdict.h"
#include "agent/host/shared_memory.h"
#include "agent/logs/log_space.h"
#include "agent/logs/log_tail.h"
#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

// Tolerance for the clock of the kernel's log, which differs from the system's clock by some more
// seconds every month.
constexpr milliseconds kClockSlack(60'000);

void AddLastLines(const AttemptWorker& worker, pb::WorkerEnded& ended) {
  std::string log = worker.folder + "/stderr.log";
  std::string last_lines = LastLines(log);
  if (last_lines.empty()) {
    log = worker.folder + "/stdout.log";
    last_lines = LastLines(log);
  }
  ended.set_last_lines(std::move(last_lines));
  ended.set_log_path(std::move(log));
}

// Returns the message that torchelastic's @record wrote; empty if the program does not use @record.
std::string ErrorMessage(const AttemptWorker& worker, std::string& note) {
  const std::string path = worker.folder + "/error.json";
  std::error_code missing;
  const auto size = std::filesystem::file_size(path, missing);
  if (missing) return "";
  std::optional<std::string> message;
  if (size <= kMaxErrorFileBytes) message = ReadErrorFile(ReadWhole(path).value_or(""));
  if (!message) note = path + " is not an error file of torchelastic; it is ignored";
  return message.value_or("");
}

// Returns the facts about memory. Lack of memory ends a process only by SIGKILL, so for a worker
// that ended in another way, the facts are about processes that it had started.
OutOfMemoryInfo MemoryInfo(const pb::WorkerExited& exited, const AttemptWorker& worker,
                           const WorkerLife& life, std::string_view last_lines) {
  OutOfMemoryInfo info;
  info.signal = exited.signal();
  info.cgroup_counted = exited.out_of_memory();
  info.kills_before = life.out_of_memory_kills;
  info.kills_now = OutOfMemoryKills();
  if (info.signal != SIGKILL && info.kills_now == info.kills_before) return info;
  const auto since = (life.started_at - kClockSlack).time_since_epoch();
  const auto since_us = static_cast<uint64_t>(
      std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::microseconds>(since).count()));
  const std::string kills = ReadKillsInKernelLog();
  info.kernel_log = info.signal == SIGKILL
                        ? FindOutOfMemoryKill(kills, worker.pid, since_us)
                        : FindOutOfMemoryKillNamedIn(last_lines, kills, since_us);
  return info;
}

void AddEvidence(const std::string& fact, pb::WorkerEnded& ended) {
  ended.set_evidence(ended.evidence().empty() ? fact : ended.evidence() + "; " + fact);
}

std::string PlaceOfCoreDump(pid_t pid, const std::string& cwd) {
  const std::string uses_pid = ReadWhole("/proc/sys/kernel/core_uses_pid").value_or("0");
  return CoreDumpPlace(ReadWhole("/proc/sys/kernel/core_pattern").value_or("core"),
                       !uses_pid.starts_with('0'), cwd, pid);
}

// Returns `evidence` with the interpreter's path if it is about a missing module, because another
// interpreter may have the module.
std::string WithInterpreter(std::string evidence, const std::string& python) {
  if (python.empty() || !evidence.starts_with("ModuleNotFoundError")) return evidence;
  return evidence + " (it was run by " + python + ")";
}

void AddRestartVerdict(const FailureEvidence& said, pb::WorkerEnded& ended) {
  if (ended.out_of_memory()) return;
  RestartVerdict verdict = JudgeRestart(ended.stopping() ? 0 : ended.signal(), ended.last_lines(),
                                        said.line, said.victim);
  ended.set_restart(verdict.restart);
  ended.set_restart_reason(std::move(verdict.reason));
  ended.set_restart_line(std::move(verdict.line));
}

}  // namespace

WorkerEnd DescribeWorkerEnd(const pb::WorkerExited& exited, const AttemptWorker& worker,
                            const WorkerLife& life) {
  WorkerEnd end;
  pb::WorkerEnded& ended = end.event;
  ended.set_attempt(life.attempt);
  ended.set_rank(worker.rank);
  ended.set_local_rank(worker.local_rank);
  ended.set_exit_code(exited.exit_code());
  ended.set_signal(exited.signal());
  ended.set_core_dumped(exited.core_dumped());
  ended.set_stopping(exited.stopping());
  if (exited.signal() == 0 && exited.exit_code() == 0) return end;
  if (exited.stopping()) {
    AddLastLines(worker, ended);
    if (auto error = ErrorBeforeStop(ended.last_lines(), ErrorMessage(worker, end.note))) {
      ended.set_failed_before_stop(true);
      ended.set_evidence(*std::move(error));
      end.failed = true;
      AddRestartVerdict({.line = ended.evidence()}, ended);
    } else {
      ended.clear_last_lines();
    }
    return end;
  }
  end.failed = true;
  AddLastLines(worker, ended);
  const FailureEvidence said =
      ClassifyFailure(ended.signal(), ended.last_lines(), ErrorMessage(worker, end.note));
  ended.set_victim(said.victim);
  if (said.victim) ended.set_peer_fault(said.peer_fault);
  ended.set_evidence(WithInterpreter(said.line, life.python));
  const OutOfMemoryInfo info = MemoryInfo(exited, worker, life, ended.last_lines());
  if (const auto memory = DecideOutOfMemory(info)) {
    ended.set_out_of_memory(true);
    ended.set_victim(false);
    ended.set_evidence(*memory);
  } else if (const auto of_child = DecideChildOutOfMemory(info, ended.last_lines())) {
    AddEvidence(*of_child, ended);
  }
  if (const auto full =
          SharedMemoryEvidence(ended.signal(), ended.last_lines(), ReadSharedMemorySpace()))
    AddEvidence(*full, ended);
  if (ended.evidence().empty()) {
    if (auto full = FullDiskEvidence(worker.folder, ReadLogSpace(worker.folder)))
      ended.set_evidence(*std::move(full));
  }
  if (ended.core_dumped() && ended.evidence().empty())
    ended.set_evidence("its core dump is " + PlaceOfCoreDump(worker.pid, life.cwd));
  AddRestartVerdict(said, ended);
  return end;
}

}  // namespace dslaunch
