// A real supervisor in a process of its own. The test plays the front end; it also plays the agent,
// whose descriptors the agent process hands over, unless it brings an agent of its own.
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
    bool one_socket = false;  // stdin and stdout are one socket, not two pipes
    bool resumable = false;
    bool without_cgroup = false;             // as where cgroup v2 is not mounted (root only)
    std::function<int(int, int)> run_agent;  // empty: the test is the agent
  };
  SupervisorHarness() : SupervisorHarness(Setup()) {}
  explicit SupervisorHarness(const Setup& setup);
  // Ends what is still there, by pid and job id, and the child of WorkerWithChild.
  ~SupervisorHarness();

  const std::string& job_id() const { return job_id_; }
  pid_t supervisor() const { return supervisor_; }
  pid_t agent() const { return agent_; }
  const std::string& hello() const { return hello_; }

  // The front end's side.
  int in() const { return in_.get(); }
  int out() const { return out_.get(); }
  void CloseIn();
  void CloseOut() { out_.Reset(); }

  // The agent's side.
  int grpc() const { return grpc_.get(); }
  int control() const { return control_.get(); }
  // Leaves gRPC's descriptor to the agent process alone, so that its death closes it.
  void DropGrpc() { grpc_.Reset(); }
  void Send(const pb::SupervisorRequest& request);
  void Configure(milliseconds grace, milliseconds agent_dead = milliseconds(60'000),
                 milliseconds teardown = milliseconds(5'000));
  // fake_worker with these arguments, as local_rank and rank `rank`.
  pb::WorkerSpec Worker(uint32_t rank, const std::vector<std::string>& args) const;
  // A shell script in place of fake_worker; its folder is dir().
  pb::WorkerSpec ShellWorker(uint32_t rank, const std::string& script) const;
  // One with a child that is deaf to SIGTERM and has wiped its environment; its pid is in dir() /
  // "child". It stays in the worker's process group or has a session of its own.
  pb::WorkerSpec WorkerWithChild(uint32_t rank, bool own_session) const;
  void SpawnWorkers(const std::vector<pb::WorkerSpec>& workers);
  // Starts fake_workers and waits until each has written its pid file.
  std::vector<pid_t> StartWorkers(size_t count, std::vector<std::string> args);
  void Stop(bool kill_now = false);
  // nullopt at end of file or after the limit.
  std::optional<pb::SupervisorEvent> Next(milliseconds limit = milliseconds(10'000));
  // The next event that is not about a status line, a start or the cgroup.
  std::optional<pb::SupervisorEvent> NextOutcome(milliseconds limit = milliseconds(10'000));
  // The answer to Stop; what comes before it is skipped.
  std::optional<pb::AllReaped> NextReaped(milliseconds limit = milliseconds(10'000));
  void EndAgent(int exit_code);

  std::string LogPath(uint32_t rank, const std::string& stream) const;
  // The workers' cgroup as the supervisor told; empty: none, or not told yet.
  const std::string& cgroup() const { return cgroup_; }
  // The supervisor's watchdog; it names itself, so it is found once it runs. 0: there is none.
  pid_t FindWatchdog() const;
  pid_t AwaitWatchdog() const;
  std::string StderrText() const { return ReadFile(dir_ / "supervisor.stderr"); }
  const TempDir& dir() const { return dir_; }

  // The supervisor's exit code, or 128 + signal; nullopt when it does not end in time.
  std::optional<int> WaitEnd(milliseconds limit = milliseconds(10'000));
  // Nothing that carries the job id lives.
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

// Reads what comes until end of file or the limit.
std::string ReadUntilEnd(int fd, milliseconds limit);

}  // namespace dslaunch
