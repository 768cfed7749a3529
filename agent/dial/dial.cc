#include "agent/dial/dial.h"

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
#include "base/exit_code.h"
#include "base/signal_name.h"
#include "base/socket_pair.h"
#include "base/subprocess.h"
#include "net/connect_attempt.h"
#include "net/pinned_tls.h"
#include "net/tls_relay.h"
#include "proto/contract/engine_line.h"

namespace dslaunch {
namespace {

constexpr milliseconds kConnectWithin(60'000);  // the front end's own limit is shorter, mostly
constexpr milliseconds kFlushWithin(2'000);     // what the agent wrote last
// Of mpirun and its daemons: what variables' names begin with.
constexpr std::string_view kOfMpi[] = {"OMPI_", "PMIX_", "ORTE_", "PRTE_", "PMI_"};
// Of the step of Slurm's in which this process is.
constexpr std::string_view kOfStep[] = {"SLURM_PROCID",         "SLURM_LOCALID",
                                        "SLURM_NODEID",         "SLURM_NTASKS",
                                        "SLURM_NPROCS",         "SLURM_TASK_PID",
                                        "SLURM_GTIDS",          "SLURM_TASKS_PER_NODE",
                                        "SLURM_STEP_ID",        "SLURM_STEPID",
                                        "SLURM_STEP_NODELIST",  "SLURM_STEP_NUM_NODES",
                                        "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE",
                                        "SLURM_DISTRIBUTION"};

std::vector<std::string> AgentEnvironment() {
  std::vector<std::string> environment = CurrentEnvironment();
  std::erase_if(environment, [](const std::string& variable) {
    const std::string_view name = std::string_view(variable).substr(0, variable.find('='));
    return std::ranges::count(kOfStep, name) > 0 ||
           std::ranges::any_of(kOfMpi,
                               [&](std::string_view prefix) { return name.starts_with(prefix); });
  });
  return environment;
}

int Fail(const std::string& why, ExitCode code = ExitCode::kUnavailable) {
  std::fprintf(stderr, "dslaunch-agent: %s\n", why.c_str());
  return ToInt(code);
}

class Dial {
 public:
  Dial(const DialOptions& options, asio::ssl::context tls)
      : options_(options), tls_(std::move(tls)) {}

  int Run() {
    for (const std::string& endpoint : options_.endpoints)
      attempts_.push_back(std::make_shared<ConnectAttempt>(search_, endpoint));
    timer_.expires_after(kConnectWithin);
    timer_.async_wait([this](std::error_code cancelled) {
      if (!cancelled && child_ <= 0) End(Fail(CannotReach()));
    });
    for (const auto& attempt : attempts_) attempt->Start();
    AwaitSignal();
    loop_.run();
    return exit_code_;
  }

 private:
  std::string CannotReach() const {
    std::string list;
    for (const auto& attempt : attempts_) list += (list.empty() ? "" : ", ") + attempt->Words();
    return "it does not reach dslaunch at " + (list.empty() ? "no address" : list) +
           "; check that a firewall lets the nodes reach the machine where dslaunch runs";
  }

  void OnFound(std::shared_ptr<TlsStream> stream) {
    for (const auto& attempt : attempts_) attempt->Stop();
    timer_.cancel();
    Result<SocketPair> pair = MakeSocketPair();
    if (!pair.ok()) return End(Fail(pair.error().message));
    SpawnSpec spec;
    spec.executable = "/proc/self/exe";
    spec.argv = options_.command;
    spec.argv.insert(spec.argv.begin(), "dslaunch-agent");
    spec.env = AgentEnvironment();
    spec.stdin_fd = spec.stdout_fd = pair->theirs.get();
    spec.stderr_fd = STDERR_FILENO;
    const SpawnResult started = Spawn(spec);
    if (started.pid < 0)
      return End(Fail(std::string("cannot start the agent: ") + started.failure.step));
    child_ = started.pid;
    relay_ = std::make_shared<TlsRelay>(std::move(stream), std::move(pair->ours), [this] {
      relay_ = nullptr;
      if (has_ended_) loop_.stop();
    });
    relay_->Start();
    OnSignal(SIGCHLD);  // it may have come before
  }

  void AwaitSignal() {
    signals_.async_wait([this](std::error_code cancelled, int number) {
      if (cancelled) return;
      OnSignal(number);
      AwaitSignal();
    });
  }

  void OnSignal(int number) {
    if (number != SIGCHLD && child_ <= 0) return End(ExitCodeForSignal(number));
    if (child_ <= 0 || has_ended_) return;
    if (number != SIGCHLD) {
      kill(child_, number);
      return;
    }
    int status = 0;
    if (waitpid(child_, &status, WNOHANG) != child_) return;
    has_ended_ = true;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : ExitCodeForSignal(WTERMSIG(status));
    const std::string line = FormatEngineLine(
        {EngineLine::Kind::kEnded, options_.place, std::to_string(exit_code_)}, options_.nonce);
    (void)!write(STDOUT_FILENO, line.data(), line.size());  // an engine that is gone ends it too
    if (!relay_) return loop_.stop();
    timer_.expires_after(kFlushWithin);
    timer_.async_wait([this](std::error_code cancelled) {
      if (!cancelled) loop_.stop();
    });
  }

  void End(int exit_code) {
    exit_code_ = exit_code;
    loop_.stop();
  }

  const DialOptions& options_;
  asio::ssl::context tls_;
  asio::io_context loop_{1};
  asio::signal_set signals_{loop_, SIGCHLD, SIGTERM, SIGINT};
  asio::steady_timer timer_{loop_};
  const ConnectAttempt::Search search_{
      loop_, tls_, [](TlsStream&) { return true; },  // the context takes the front end's key alone
      [this](std::shared_ptr<TlsStream> stream, const std::string&) {
        OnFound(std::move(stream));
      }};
  std::vector<std::shared_ptr<ConnectAttempt>> attempts_;
  std::shared_ptr<TlsRelay> relay_;
  pid_t child_ = -1;
  bool has_ended_ = false;
  int exit_code_ = 0;
};

}  // namespace

int RunDial(const DialOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_NAME, "dslaunch-dial");
  if (!IsPin(options.pin)) return Fail("the front end's key has no valid pin", ExitCode::kUsage);
  const Result<PinnedKey> key = MakePinnedKey();
  if (!key.ok()) return Fail(key.error().message, key.error().code);
  Result<asio::ssl::context> tls = MakePinnedContext(*key, options.pin);
  if (!tls.ok()) return Fail(tls.error().message, tls.error().code);
  const std::string line =
      FormatEngineLine({EngineLine::Kind::kDial, options.place, key->pin}, options.nonce);
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return ToInt(ExitCode::kIo);
  Dial dial(options, *std::move(tls));
  return dial.Run();
}

}  // namespace dslaunch
