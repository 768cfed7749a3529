#include "agent/call_back/call_back.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/errno_text.h"
#include "base/exit_code.h"
#include "base/os/socket_pair.h"
#include "base/os/subprocess.h"
#include "base/unique_fd.h"
#include "net/connect_attempt.h"
#include "net/pinned_tls.h"
#include "net/tls_relay.h"
#include "proto/contract/call_back_line.h"
#include "proto/contract/slurm_step.h"

namespace dslaunch {
namespace {

constexpr milliseconds kConnectWithin(60'000);   // the front end's own limit is shorter, mostly
constexpr milliseconds kFlushWithin(2'000);      // limit for sending the agent's last bytes
constexpr milliseconds kAgentEndsWithin(5'000);  // limit for an agent without front end to exit
// Signals that mpirun and srun forward, or with which Slurm announces and enforces the end of a
// step. They are passed on to the agent.
constexpr int kPassedSignals[] = {SIGTERM, SIGINT, SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2};
// Prefixes of the variables that mpirun and its daemons set for each process.
constexpr std::string_view kMpiPrefixes[] = {"OMPI_", "PMIX_", "ORTE_", "PRTE_", "PMI_"};

void UnsetPlace() {
  for (const std::string& variable : CurrentEnvironment()) {
    const std::string name = variable.substr(0, variable.find('='));
    if (std::ranges::count(kSlurmStepVariables, name) > 0 ||
        std::ranges::any_of(kMpiPrefixes,
                            [&](std::string_view prefix) { return name.starts_with(prefix); }))
      ::unsetenv(name.c_str());
  }
}

int Fail(const std::string& why, ExitCode code = ExitCode::kUnavailable) {
  std::fprintf(stderr, "dslaunch-agent: %s\n", why.c_str());
  return ToInt(code);
}

// Forks the agent and returns its process ID, or -1 with errno set. The agent is not executed
// again, so that OpenSSL is initialized only once.
pid_t StartAgent(const std::function<int()>& run_agent, SocketPair& pair) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  pair.ours.Reset();
  if (::dup2(pair.theirs.get(), STDIN_FILENO) < 0 || ::dup2(pair.theirs.get(), STDOUT_FILENO) < 0)
    ::_exit(ToInt(ExitCode::kInternal));
  pair.theirs.Reset();
  UnsetPlace();
  const int code = run_agent();
  std::fflush(nullptr);
  ::_exit(code);
}

class CallBack {
 public:
  // `agent` is the process ID of the agent, whose stdin and stdout are the other end of `stream`.
  CallBack(const CallBackOptions& options, asio::ssl::context tls, pid_t agent, UniqueFd stream)
      : options_(options), tls_(std::move(tls)), agent_(agent), stream_(std::move(stream)) {}

  int Run() {
    timer_.expires_after(kConnectWithin);
    timer_.async_wait([this](std::error_code cancelled) {
      if (!cancelled) StopSearch();
    });
    search_.Start();
    for (const int number : kPassedSignals) signals_.add(number);
    AwaitSignal();
    OnSignal(SIGCHLD);  // the agent may have exited before the signal set existed
    loop_.run();
    return exit_code_;
  }

 private:
  std::string CannotReach() const {
    return "it does not reach dslaunch at " + search_.Describe() +
           "; check that a firewall lets the nodes reach the machine where dslaunch runs";
  }

  // Ends the search without success. Closes the agent's stream, so the agent reads end of file and
  // exits.
  void StopSearch() {
    failure_ = Fail(CannotReach());
    search_.Stop();
    stream_.Reset();
    StopAfter(kAgentEndsWithin);
  }

  void OnFound(std::shared_ptr<TlsStream> stream) {
    search_.Stop();
    timer_.cancel();
    relay_ = std::make_shared<TlsRelay>(std::move(stream), std::move(stream_), [this] {
      relay_ = nullptr;
      if (has_ended_) loop_.stop();
    });
    relay_->Start();
  }

  void AwaitSignal() {
    signals_.async_wait([this](std::error_code cancelled, int number) {
      if (cancelled) return;
      OnSignal(number);
      AwaitSignal();
    });
  }

  void OnSignal(int number) {
    if (has_ended_) return;
    if (number != SIGCHLD) {
      kill(agent_, number);
      return;
    }
    int status = 0;
    if (waitpid(agent_, &status, WNOHANG) != agent_) return;
    has_ended_ = true;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : ExitCodeForSignal(WTERMSIG(status));
    if (failure_ != 0) exit_code_ = failure_;
    const std::string line = FormatCallBackLine(
        {CallBackLine::Kind::kEnded, options_.place, std::to_string(exit_code_)}, options_.nonce);
    // If the write fails, the launcher has exited, which also ends the nodes that it started, so
    // the failure is ignored.
    (void)!write(STDOUT_FILENO, line.data(), line.size());
    if (relay_)
      StopAfter(kFlushWithin);
    else
      loop_.stop();
  }

  void StopAfter(milliseconds limit) {
    timer_.expires_after(limit);
    timer_.async_wait([this](std::error_code cancelled) {
      if (!cancelled) loop_.stop();
    });
  }

  const CallBackOptions& options_;
  asio::ssl::context tls_;
  asio::io_context loop_{1};
  asio::signal_set signals_{loop_, SIGCHLD};
  asio::steady_timer timer_{loop_};
  ConnectSearch search_{loop_, tls_, options_.endpoints,
                        [this](TlsStream& stream) { return PeerPin(stream) == options_.pin; },
                        [this](std::shared_ptr<TlsStream> stream, const std::string&) {
                          OnFound(std::move(stream));
                        }};
  std::shared_ptr<TlsRelay> relay_;
  const pid_t agent_;
  UniqueFd stream_;  // socket to the agent; empty once `relay_` owns it
  bool has_ended_ = false;
  int failure_ = 0;  // exit code if the front end was not reached; otherwise 0
  int exit_code_ = ToInt(ExitCode::kUnavailable);
};

}  // namespace

int RunCallBack(const CallBackOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  if (!IsPin(options.pin)) return Fail("the front end's key has no valid pin", ExitCode::kUsage);
  const Result<PinnedKey> key = MakePinnedKey();
  if (!key.ok()) return Fail(key.error().message, key.error().code);
  Result<asio::ssl::context> tls = MakePinnedContext(*key, options.pin);
  if (!tls.ok()) return Fail(tls.error().message, tls.error().code);
  Result<SocketPair> pair = MakeSocketPair();
  if (!pair.ok()) return Fail(pair.error().message, pair.error().code);
  const pid_t agent = StartAgent(options.run_agent, *pair);
  if (agent < 0) return Fail("cannot start the agent: fork: " + ErrnoText(errno));
  pair->theirs.Reset();
  prctl(PR_SET_NAME, "dslaunch-call");
  const std::string line =
      FormatCallBackLine({CallBackLine::Kind::kKey, options.place, key->pin}, options.nonce);
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return ToInt(ExitCode::kIo);
  CallBack call_back(options, *std::move(tls), agent, std::move(pair->ours));
  const int exit_code = call_back.Run();
  ::_exit(exit_code);  // exits without freeing OpenSSL's memory, which takes long
}

}  // namespace dslaunch
