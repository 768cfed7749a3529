// Runs a real supervisor in its own process. The test acts as the front end. The test also acts as
// the agent, whose descriptors the agent process sends to it, unless the test supplies an agent.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "proto/supervisor.pb.h"
#include "tests/support/processes.h"

namespace dslaunch {

class SupervisorHarness {
 public:
  struct Setup {
    bool one_socket = false;  // whether stdin and stdout are one socket instead of two pipes
    bool resumable = false;
    bool without_cgroup = false;  // whether to behave as if cgroup v2 were not mounted (root only)
    std::function<int(int, int)> run_agent;  // empty if the test is the agent
  };
  SupervisorHarness() : SupervisorHarness(Setup()) {}
  explicit SupervisorHarness(const Setup& setup);
  // Ends the remaining processes, found by pid and job id, and the child of WorkerWithChild().
  ~SupervisorHarness();

  const std::string& job_id() const { return job_id_; }
  pid_t supervisor() const { return supervisor_; }
  pid_t agent() const { return agent_; }
  const std::string& hello() const { return hello_; }

  // Return the test's ends of the supervisor's stdin and stdout, which the front end uses.
  int in() const { return in_.get(); }
  int out() const { return out_.get(); }
  void CloseIn();
  void CloseOut() { out_.Reset(); }

  // The agent's side of the connections.
  int grpc() const { return grpc_.get(); }
  int control() const { return control_.get(); }
  // Closes the test's copy of gRPC's descriptor, so that the agent's death closes the connection.
  void DropGrpc() { grpc_.Reset(); }
  void Send(const pb::SupervisorRequest& request);
  void Configure(milliseconds grace, milliseconds agent_dead = milliseconds(60'000),
                 milliseconds teardown = milliseconds(5'000));
  // Returns a worker that runs fake_worker with these arguments and has the local rank and rank
  // `rank`.
  pb::WorkerSpec Worker(uint32_t rank, const std::vector<std::string>& args) const;
  // Returns a worker that runs a shell script; its folder is dir().
  pb::WorkerSpec ShellWorker(uint32_t rank, const std::string& script) const;
  // Returns a worker with a child that ignores SIGTERM and has cleared its environment. The child's
  // pid is in dir() / "child". The child stays in the worker's process group, or gets its own
  // session if `own_session`.
  pb::WorkerSpec WorkerWithChild(uint32_t rank, bool own_session) const;
  void SpawnWorkers(const std::vector<pb::WorkerSpec>& workers);
  // Starts `count` fake_workers and waits until each has written its pid file. Returns their pids.
  std::vector<pid_t> StartWorkers(size_t count, std::vector<std::string> args);
  void Stop(bool kill_now = false);
  // Returns the next event; nullopt at end of file or at the time limit.
  std::optional<pb::SupervisorEvent> Next(milliseconds limit = milliseconds(10'000));
  // Returns the next event that is not about a status line, a start or the cgroup.
  std::optional<pb::SupervisorEvent> NextOutcome(milliseconds limit = milliseconds(10'000));
  // Returns the answer to Stop(), and skips earlier events; nullopt as for Next().
  std::optional<pb::AllReaped> NextReaped(milliseconds limit = milliseconds(10'000));
  void EndAgent(int exit_code);

  std::string LogPath(uint32_t rank, const std::string& stream) const;
  // Returns the workers' cgroup as the supervisor reported it; empty if none was reported.
  const std::string& cgroup() const { return cgroup_; }
  // Returns the pid of the supervisor's watchdog; 0 if there is none, or if it has not set its name
  // yet.
  pid_t FindWatchdog() const;
  // Waits for the watchdog and returns its pid. Fails the test if there is none after 5 s.
  pid_t AwaitWatchdog() const;
  std::string StderrText() const { return ReadFile(dir_ / "supervisor.stderr"); }
  const TempDir& dir() const { return dir_; }

  // Returns the supervisor's exit code, or 128 + signal; nullopt if it does not end within `limit`.
  std::optional<int> WaitEnd(milliseconds limit = milliseconds(10'000));
  // Returns whether no process with the job id is alive, at the latest after `limit`.
  bool IsEmpty(milliseconds limit = milliseconds(0)) const;

 private:
  [[noreturn]] void RunChild(const Setup& setup, int in, int out, int handoff);
  void ReceiveAgent();

  TempDir dir_;
  const std::string job_id_ = NewJobId();
  UniqueFd in_, out_, handoff_, grpc_, control_;
  std::string hello_, partial_, cgroup_;
  pid_t supervisor_ = -1;
  pid_t agent_ = -1;
  std::optional<int> end_;
};

// Returns the bytes read from `fd` until end of file or the time limit.
std::string ReadUntilEnd(int fd, milliseconds limit);

}  // namespace dslaunch
