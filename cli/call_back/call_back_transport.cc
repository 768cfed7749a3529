#include "cli/call_back/call_back_transport.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <thread>

#include "base/os/start_thread.h"
#include "base/text/split_lines.h"
#include "cli/transport/agent_digest.h"
#include "cli/transport/agent_scripts.h"
#include "cli/transport/child_process.h"
#include "cli/transport/hello.h"
#include "proto/contract/call_back_line.h"

namespace dslaunch {
namespace {

constexpr milliseconds kEndsWithin{2'000};  // limit for the launcher's exit after its agents
// Limit for a line of the launcher's output; longer lines are cut.
constexpr size_t kMaxLineBytes = 64 << 10;
constexpr size_t kStderrBytes = 64 << 10;  // large because mpirun's long help texts come last
constexpr milliseconds kStderrEvery{250};  // interval at which stderr is read for failed nodes

}  // namespace

// A process of the launcher, with a thread that reads its output.
class CallBackTransport::Run {
 public:
  Run(std::shared_ptr<CallBackServer> server, std::unique_ptr<ChildProcess> child,
      std::string nonce, Launcher launcher, std::vector<NodeTarget> targets)
      : server_(std::move(server)),
        child_(std::move(child)),
        nonce_(std::move(nonce)),
        stream_(child_->TakeStream()),
        launcher_(launcher),
        start_(*RowOf(launcher).start_all),
        targets_(std::move(targets)),
        nodes_(targets_.size()) {}

  ~Run() {
    child_->Signal(SIGTERM);
    if (!child_->WaitEnd(Deadline::After(kEndsWithin))) child_->KillGroup();
    ::shutdown(stream_.get(), SHUT_RDWR);
    if (reader_.joinable()) reader_.join();
  }

  Result<void> StartReading() {
    DSL_TRY_ASSIGN(reader_, StartThread([this] { Read(); }, "to read the launcher's output"));
    return {};
  }

  const std::string& nonce() const { return nonce_; }

  // Returns the connection of a node's agent. The error is a fragment of a sentence: "the agent
  // could not be installed".
  Result<CallBackServer::Caller> AwaitAgent(size_t index, Deadline deadline) {
    std::string pin;
    {
      const MutexLock lock(mutex_);
      const Node& node = nodes_[index];
      changed_.WaitUntil(mutex_, deadline.when(), [&]() DSL_REQUIRES(mutex_) {
        return !node.pin.empty() || !node.failure.empty() || !node.end.empty() || has_ended_;
      });
      if (!node.failure.empty()) {
        return Error{ExitCode::kUnavailable,
                     "the agent could not be installed; it printed: " + node.failure};
      }
      if (node.pin.empty() && !node.end.empty())
        return Error{ExitCode::kUnavailable, node.end + Output()};
      if (node.pin.empty() && has_ended_)
        return Error{ExitCode::kUnavailable, "it ended with " + end_ + Output()};
      if (node.pin.empty())
        return Error{ExitCode::kUnavailable, "the agent did not start in time" + Output()};
      pin = node.pin;
    }
    Result<CallBackServer::Caller> caller = server_->Await(pin, deadline);
    const MutexLock lock(mutex_);
    if (!caller.ok()) {
      const bool has_ended = nodes_[index].has_ended || !nodes_[index].end.empty() || has_ended_;
      return Error{caller.error().code,
                   "the agent was started, but " + caller.error().message + Output() +
                       (has_ended ? "" : "; do firewalls let the nodes reach it?")};
    }
    nodes_[index].has_connected = true;
    return caller;
  }

  // Keeps `stream`, a duplicate of the node's stream, to shut it down if the launcher ends first.
  void ShutWithLauncher(size_t index, UniqueFd stream) {
    const MutexLock lock(mutex_);
    nodes_[index].stream = std::move(stream);
    if (has_ended_) Shut(nodes_[index]);
  }
  void Abort(size_t index) {
    const MutexLock lock(mutex_);
    Shut(nodes_[index]);
  }

  // Waits until no process that the agent started is left and, after the last node, until the
  // launcher's own processes have ended. Returns false if the deadline passed first, or if the
  // launcher ended without reporting the agent's end.
  bool AwaitNodeEnd(size_t index, Deadline deadline) {
    {
      const MutexLock lock(mutex_);
      changed_.WaitUntil(mutex_, deadline.when(), [&]() DSL_REQUIRES(mutex_) {
        return nodes_[index].has_ended || has_ended_;
      });
      if (!nodes_[index].has_ended) return false;
      if (!std::ranges::all_of(nodes_, &Node::has_ended)) return true;
    }
    child_->WaitEnd(Deadline::After(kEndsWithin).Earlier(deadline));
    return true;
  }

  std::string StderrTail() const {
    std::string output = child_->StderrTail(kStderrBytes);
    return start_.without_remarks != nullptr ? start_.without_remarks(output) : output;
  }

 private:
  struct Node {
    std::string pin;
    std::string failure;
    // Failure that the launcher reported for this node's command; empty if it reported none.
    std::string end;
    bool has_connected = false;
    bool has_ended = false;
    UniqueFd stream;
  };

  std::string Output() const { return OutputClause(StderrTail()); }

  static void Shut(const Node& node) {
    if (node.stream && !node.has_ended) ::shutdown(node.stream.get(), SHUT_RDWR);
  }

  // Ends the wait for a connection that can no longer arrive.
  void Forget(const Node& node) {
    if (!node.pin.empty() && !node.has_connected) server_->Forget(node.pin);
  }

  void Read() {
    std::string line;
    std::array<char, 16384> chunk;
    while (true) {
      AwaitOutput();
      const ssize_t size = ::read(stream_.get(), chunk.data(), chunk.size());
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) break;
      for (const char c : std::string_view(chunk.data(), static_cast<size_t>(size))) {
        if (c == '\n') {
          OnLine(line);
          line.clear();
        } else if (line.size() < kMaxLineBytes) {
          line += c;
        }
      }
    }
    const std::optional<int> status = child_->WaitEnd(Deadline::After(kEndsWithin));
    const MutexLock lock(mutex_);
    has_ended_ = true;
    end_ = status ? EndInWords(*status) : "no exit status";
    for (const Node& node : nodes_) {
      Shut(node);
      Forget(node);
    }
    changed_.NotifyAll();
  }

  // Waits for output. While waiting, reads stderr for failures of nodes that have not connected, if
  // the launcher reports such failures. A launcher prints a node's last line of output before it
  // reports the failure, so output is read first.
  void AwaitOutput() {
    std::string errors;
    while (true) {
      pollfd output{stream_.get(), POLLIN, 0};
      const bool is_awaited = start_.read_failure != nullptr && AwaitsNodes();
      const int wait_ms = !errors.empty() ? 0
                          : is_awaited    ? static_cast<int>(kStderrEvery.count())
                                          : -1;
      if (::poll(&output, 1, wait_ms) != 0) return;
      for (const std::string_view line : SplitLines(errors)) OnErrorLine(line);
      errors = errors.empty() ? StderrTail() : "";
    }
  }

  bool AwaitsNodes() {
    const MutexLock lock(mutex_);
    return std::ranges::any_of(nodes_, [](const Node& node) {
      return !node.has_connected && !node.has_ended && node.failure.empty() && node.end.empty();
    });
  }

  void OnErrorLine(std::string_view line) {
    std::optional<CommandFailure> failure = start_.read_failure(line, targets_);
    if (!failure) return;
    const MutexLock lock(mutex_);
    Node& node = nodes_[failure->index];
    if (!node.end.empty()) return;
    node.end = std::move(failure->text);
    Forget(node);
    changed_.NotifyAll();
  }

  void OnLine(const std::string& text) {
    const std::optional<CallBackLine> line = ReadCallBackLine(text, nonce_);
    if (!line) return;
    const std::optional<size_t> index = NodeOfPlace(launcher_, line->place, targets_);
    if (!index) return;
    const MutexLock lock(mutex_);
    Node& node = nodes_[*index];
    if (line->kind == CallBackLine::Kind::kKey) node.pin = line->text;
    if (line->kind == CallBackLine::Kind::kFailed) node.failure = OneLine(line->text, 512);
    if (line->kind == CallBackLine::Kind::kEnded) {
      node.has_ended = true;
      Forget(node);
    }
    changed_.NotifyAll();
  }

  const std::shared_ptr<CallBackServer> server_;
  const std::unique_ptr<ChildProcess> child_;
  const std::string nonce_;
  const UniqueFd stream_;
  const Launcher launcher_;
  const StartAll& start_;
  const std::vector<NodeTarget> targets_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Node> nodes_ DSL_GUARDED_BY(mutex_);
  bool has_ended_ DSL_GUARDED_BY(mutex_) = false;
  std::string end_ DSL_GUARDED_BY(mutex_);
  std::thread reader_;
};

class CallBackTransport::Link : public NodeLink {
 public:
  Link(Place place, CallBackServer::Caller caller)
      : place_(std::move(place)), caller_(std::move(caller)) {
    place_.run->ShutWithLauncher(place_.index, UniqueFd(::dup(caller_.stream.get())));
  }
  ~Link() override { place_.run->Abort(place_.index); }

  UniqueFd TakeFd() override { return std::move(caller_.stream); }
  void Abort(const std::string&) override { place_.run->Abort(place_.index); }
  bool WaitEnd(Deadline deadline) override {
    place_.run->Abort(place_.index);  // needed because the duplicate keeps the stream open
    return place_.run->AwaitNodeEnd(place_.index, deadline);
  }
  std::string StderrTail() const override { return place_.run->StderrTail(); }
  std::string Address() const override { return caller_.address; }
  std::string OwnAddress() const override { return caller_.own_address; }

 private:
  const Place place_;
  CallBackServer::Caller caller_;
};

CallBackTransport::~CallBackTransport() = default;

Result<void> CallBackTransport::StartServer() {
  CallBackServer::Options server;
  std::vector<OfferedAgent> offered;
  for (const std::string& machine : MachinesOf(options_.agent)) {
    OfferedAgent one{*AgentFor(options_.agent, machine), "", MakeNonce()};
    DSL_TRY_ASSIGN(one.sha256, AgentDigest(one.agent.path, OwnCacheFolder()));
    server.files[one.ticket] = one.agent.path;
    offered.push_back(std::move(one));
  }
  server.network_interface = options_.network_interface;
  server.max_unclaimed += options_.nodes.size() + options_.num_single;
  const StartAll& launcher = *RowOf(options_.program.launcher).start_all;
  if (launcher.ports != nullptr) server.ports = launcher.ports();
  DSL_TRY_ASSIGN(server_, CallBackServer::Start(std::move(server)));
  offered_ = std::move(offered);
  return {};
}

Result<std::shared_ptr<CallBackTransport::Run>> CallBackTransport::Start(
    const std::vector<NodeTarget>& nodes) {
  const LauncherProgram& program = options_.program;
  const StartAll& launcher = *RowOf(program.launcher).start_all;
  if (!server_) DSL_TRY(StartServer());
  CallBackStart start;
  start.nonce = MakeNonce();
  start.place = launcher.place;
  start.pin = server_->pin();
  start.endpoints = server_->endpoints();
  std::string script = CallBackScript(offered_, options_.role, start);
  if (launcher.runs_login_shell) script = ForLoginShell(script);
  Result<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(
      launcher.command(program, nodes, script), ChildProcess::Fate::kEndsWithUs);
  if (!child.ok())
    return Error{ExitCode::kUnavailable, "it cannot be started: " + child.error().message};
  auto run =
      std::make_shared<Run>(server_, *std::move(child), start.nonce, program.launcher, nodes);
  DSL_TRY(run->StartReading());
  return run;
}

Result<CallBackTransport::Place> CallBackTransport::Join(const NodeTarget& target) {
  const MutexLock lock(mutex_);
  has_joined_.resize(options_.nodes.size());
  const auto known = std::ranges::find(options_.nodes, target.name, &NodeTarget::name);
  const auto index = static_cast<size_t>(known - options_.nodes.begin());
  if (known == options_.nodes.end() || has_joined_[index]) {
    Place place;
    DSL_TRY_ASSIGN(place.run, Start({target}));
    return place;
  }
  if (!common_) {
    DSL_TRY_ASSIGN(common_, Start(options_.nodes));
  }
  has_joined_[index] = true;
  Place place{common_, index};
  // The links keep the shared state alive, so the run is released here once all nodes have joined.
  if (std::ranges::count(has_joined_, false) == 0) common_ = nullptr;
  return place;
}

Error CallBackTransport::Fail(const NodeTarget& target, const Error& error) const {
  const std::string& program = options_.program.words.front();
  return {error.code, "node '" + target.name + "' (" + target.host + " by " +
                          program.substr(program.rfind('/') + 1) + "): " + error.message +
                          "; compare with " + TryThisCommand(options_.program, target)};
}

Result<std::unique_ptr<NodeLink>> CallBackTransport::Connect(const NodeTarget& target,
                                                             Deadline deadline) {
  const auto begin = [&](ConnectStep step) {
    if (options_.on_step) options_.on_step(step);
  };
  // The launcher shows no progress before the agent's line, so the start is reported as a single
  // step.
  begin(ConnectStep::kConnect);
  Result<Place> place = Join(target);
  if (!place.ok()) return Fail(target, place.error());
  Result<CallBackServer::Caller> caller = place->run->AwaitAgent(place->index, deadline);
  if (!caller.ok()) return Fail(target, caller.error());
  begin(ConnectStep::kStartAgent);
  HelloScanner scanner(place->run->nonce());
  const int stream = caller->stream.get();
  auto link = std::make_unique<Link>(*std::move(place), *std::move(caller));
  if (const Result<void> hello = AwaitHello(stream, scanner, deadline); !hello.ok()) {
    return Fail(target, {ExitCode::kUnavailable,
                         "the agent " + hello.error().message + OutputClause(link->StderrTail())});
  }
  if (!HasBuild(options_.agent, scanner.build_id())) {
    return Fail(target,
                {ExitCode::kUnavailable, OtherBuildText(options_.agent, scanner.build_id())});
  }
  begin(ConnectStep::kRunning);
  return std::unique_ptr<NodeLink>(std::move(link));
}

}  // namespace dslaunch
