#include "cli/launchers/transport_engine.h"

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
#include "base/text/sanitize.h"
#include "base/text/split_lines.h"
#include "cli/transport/agent_digest.h"
#include "cli/transport/child_process.h"
#include "cli/transport/hello.h"
#include "cli/transport/ssh_bootstrap.h"
#include "proto/contract/engine_line.h"

namespace dslaunch {
namespace {

constexpr milliseconds kEngineEndsWithin{2'000};  // once its agents have
constexpr size_t kMaxLineBytes = 64 << 10;        // of its output; more is cut
constexpr size_t kStderrBytes = 64 << 10;         // mpirun's help texts come last, and are long
constexpr milliseconds kStderrEvery{250};         // what pdsh says of nodes is looked at so often

}  // namespace

// One process of the engine, and a thread that reads its output.
class EngineTransport::Run {
 public:
  Run(std::shared_ptr<DialServer> server, std::unique_ptr<ChildProcess> child, std::string nonce,
      Engine engine, std::vector<NodeTarget> targets)
      : server_(std::move(server)),
        child_(std::move(child)),
        nonce_(std::move(nonce)),
        stream_(child_->TakeStream()),
        engine_(engine),
        targets_(std::move(targets)),
        nodes_(targets_.size()) {}

  ~Run() {
    child_->Signal(SIGTERM);
    if (!child_->WaitEnd(Deadline::After(kEngineEndsWithin))) child_->KillGroup();
    ::shutdown(stream_.get(), SHUT_RDWR);
    if (reader_.joinable()) reader_.join();
  }

  Result<void> StartReading() {
    DSL_TRY_ASSIGN(reader_, StartThread([this] { Read(); }, "to read the engine's output"));
    return {};
  }

  const std::string& nonce() const { return nonce_; }

  // The connection of a node's agent. The error is a fragment: "the agent could not be installed".
  Result<DialServer::Caller> AwaitAgent(size_t index, Deadline deadline) {
    std::string pin;
    {
      const MutexLock lock(mutex_);
      const Node& node = nodes_[index];
      changed_.WaitUntil(mutex_, deadline.when(), [&]() DSL_REQUIRES(mutex_) {
        return !node.pin.empty() || !node.failure.empty() || !node.end.empty() || has_ended_;
      });
      if (!node.failure.empty()) {
        return Error{ExitCode::kUnavailable,
                     "the agent could not be installed; it said: " + node.failure};
      }
      if (node.pin.empty() && !node.end.empty())
        return Error{ExitCode::kUnavailable, node.end + Said()};
      if (node.pin.empty() && has_ended_)
        return Error{ExitCode::kUnavailable, "it ended with " + end_ + Said()};
      if (node.pin.empty())
        return Error{ExitCode::kUnavailable, "the agent did not start in time" + Said()};
      pin = node.pin;
    }
    Result<DialServer::Caller> caller = server_->Await(pin, deadline);
    const MutexLock lock(mutex_);
    if (!caller.ok()) {
      const bool has_ended = nodes_[index].has_ended || !nodes_[index].end.empty() || has_ended_;
      return Error{caller.error().code,
                   "the agent was started, but " + caller.error().message + Said() +
                       (has_ended ? "" : "; do firewalls let the nodes reach it?")};
    }
    nodes_[index].has_connected = true;
    return caller;
  }

  // What is to be shut when the engine ends before this node has: as its link, so its agent.
  void ShutWithEngine(size_t index, UniqueFd stream) {
    const MutexLock lock(mutex_);
    nodes_[index].stream = std::move(stream);
    if (has_ended_) Shut(nodes_[index]);
  }
  void Abort(size_t index) {
    const MutexLock lock(mutex_);
    Shut(nodes_[index]);
  }

  // True once nothing that the agent started is left, and, after the last node, the engine's own
  // processes neither. False: the deadline came first, or the engine ended without saying so.
  bool AwaitNodeEnd(size_t index, Deadline deadline) {
    {
      const MutexLock lock(mutex_);
      changed_.WaitUntil(mutex_, deadline.when(), [&]() DSL_REQUIRES(mutex_) {
        return nodes_[index].has_ended || has_ended_;
      });
      if (!nodes_[index].has_ended) return false;
      if (!std::ranges::all_of(nodes_, &Node::has_ended)) return true;
    }
    child_->WaitEnd(Deadline::After(kEngineEndsWithin).Earlier(deadline));
    return true;
  }

  std::string StderrTail() const {
    std::string words = child_->StderrTail(kStderrBytes);
    return engine_ == Engine::kSlurm ? WithoutSrunRemarks(words) : words;
  }

 private:
  struct Node {
    std::string pin;
    std::string failure;
    std::string end;  // of the command that pdsh ran for it
    bool has_connected = false;
    bool has_ended = false;
    UniqueFd stream;
  };

  std::string Said() const { return ItSaid(StderrTail()); }

  static void Shut(const Node& node) {
    if (node.stream && !node.has_ended) ::shutdown(node.stream.get(), SHUT_RDWR);
  }

  // Its connection, if it is not there yet, is not waited for.
  void GiveUp(const Node& node) {
    if (!node.pin.empty() && !node.has_connected) server_->GiveUp(node.pin);
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
    const std::optional<int> status = child_->WaitEnd(Deadline::After(kEngineEndsWithin));
    const MutexLock lock(mutex_);
    has_ended_ = true;
    end_ = status ? EndInWords(*status) : "no exit status";
    for (const Node& node : nodes_) {
      Shut(node);
      GiveUp(node);
    }
    changed_.NotifyAll();
  }

  // Reads meanwhile what pdsh says of nodes that are awaited. A node's last line, which it wrote
  // before that, is taken first.
  void AwaitOutput() {
    std::string said;
    while (true) {
      pollfd output{stream_.get(), POLLIN, 0};
      const bool is_awaited = engine_ == Engine::kPdsh && AwaitsNodes();
      const int wait_ms = !said.empty() ? 0
                          : is_awaited  ? static_cast<int>(kStderrEvery.count())
                                        : -1;
      if (::poll(&output, 1, wait_ms) != 0) return;
      for (const std::string_view line : SplitLines(said)) OnPdshLine(line);
      said = said.empty() ? StderrTail() : "";
    }
  }

  bool AwaitsNodes() {
    const MutexLock lock(mutex_);
    return std::ranges::any_of(nodes_, [](const Node& node) {
      return !node.has_connected && !node.has_ended && node.failure.empty() && node.end.empty();
    });
  }

  void OnPdshLine(std::string_view line) {
    std::optional<PdshFailure> failure = ReadPdshFailure(line, targets_);
    if (!failure) return;
    const MutexLock lock(mutex_);
    Node& node = nodes_[failure->index];
    if (!node.end.empty()) return;
    node.end = std::move(failure->text);
    GiveUp(node);
    changed_.NotifyAll();
  }

  void OnLine(const std::string& text) {
    const std::optional<EngineLine> line = ReadEngineLine(text, nonce_);
    if (!line) return;
    const std::optional<size_t> index = NodeOfPlace(engine_, line->place, targets_);
    if (!index) return;
    const MutexLock lock(mutex_);
    Node& node = nodes_[*index];
    if (line->kind == EngineLine::Kind::kDial) node.pin = line->text;
    if (line->kind == EngineLine::Kind::kFailed) node.failure = OneLine(line->text, 512);
    if (line->kind == EngineLine::Kind::kEnded) {
      node.has_ended = true;
      GiveUp(node);
    }
    changed_.NotifyAll();
  }

  const std::shared_ptr<DialServer> server_;
  const std::unique_ptr<ChildProcess> child_;
  const std::string nonce_;
  const UniqueFd stream_;
  const Engine engine_;
  const std::vector<NodeTarget> targets_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Node> nodes_ DSL_GUARDED_BY(mutex_);
  bool has_ended_ DSL_GUARDED_BY(mutex_) = false;
  std::string end_ DSL_GUARDED_BY(mutex_);
  std::thread reader_;
};

class EngineTransport::Link : public NodeLink {
 public:
  Link(Place place, DialServer::Caller caller)
      : place_(std::move(place)), caller_(std::move(caller)) {
    place_.run->ShutWithEngine(place_.index, UniqueFd(::dup(caller_.stream.get())));
  }
  ~Link() override { place_.run->Abort(place_.index); }

  UniqueFd TakeFd() override { return std::move(caller_.stream); }
  void Abort(const std::string&) override { place_.run->Abort(place_.index); }
  bool WaitEnd(Deadline deadline) override {
    place_.run->Abort(place_.index);  // its duplicate would keep a closed stream open
    return place_.run->AwaitNodeEnd(place_.index, deadline);
  }
  std::string StderrTail() const override { return place_.run->StderrTail(); }
  std::string Address() const override { return caller_.address; }
  std::string OwnAddress() const override { return caller_.own_address; }

 private:
  const Place place_;
  DialServer::Caller caller_;
};

EngineTransport::~EngineTransport() = default;

Result<std::shared_ptr<EngineTransport::Run>> EngineTransport::Start(
    const std::vector<NodeTarget>& nodes) {
  if (!server_) {
    ticket_ = MakeNonce();
    DSL_TRY_ASSIGN(sha256_, AgentDigest(options_.agent.path, OwnCacheFolder()));
    DialServer::Options server;
    server.network_interface = options_.network_interface;
    server.ticket = ticket_;
    server.file = options_.agent.path;
    server.max_unclaimed += options_.nodes.size() + options_.num_single;
    if (options_.engine.engine == Engine::kSlurm) server.ports = OwnSrunPortRange();
    DSL_TRY_ASSIGN(server_, DialServer::Start(std::move(server)));
  }
  EngineStart start;
  start.nonce = MakeNonce();
  start.place = PlaceIn(options_.engine.engine);
  start.pin = server_->pin();
  start.endpoints = server_->endpoints();
  start.ticket = ticket_;
  const std::string script = EngineScript(options_.agent, sha256_, options_.role, start);
  Result<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(
      EngineCommandLine(options_.engine, nodes, script), ChildProcess::Fate::kEndsWithUs);
  if (!child.ok())
    return Error{ExitCode::kUnavailable, "it cannot be started: " + child.error().message};
  auto run =
      std::make_shared<Run>(server_, *std::move(child), start.nonce, options_.engine.engine, nodes);
  DSL_TRY(run->StartReading());
  return run;
}

Result<EngineTransport::Place> EngineTransport::Join(const NodeTarget& target) {
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
  if (std::ranges::count(has_joined_, false) == 0) common_ = nullptr;  // the links keep it
  return place;
}

Error EngineTransport::Fail(const NodeTarget& target, const Error& error) const {
  const std::string& program = options_.engine.words.front();
  return {error.code, "node '" + target.name + "' (" + target.host + " by " +
                          program.substr(program.rfind('/') + 1) + "): " + error.message +
                          "; compare with " + EngineTryThis(options_.engine, target)};
}

Result<std::unique_ptr<NodeLink>> EngineTransport::Connect(const NodeTarget& target,
                                                           Deadline deadline) {
  const auto begin = [&](SshStep step) {
    if (options_.on_step) options_.on_step(step);
  };
  // All that the engine does is one step: only the agent's line could show more.
  begin(SshStep::kConnect);
  Result<Place> place = Join(target);
  if (!place.ok()) return Fail(target, place.error());
  Result<DialServer::Caller> caller = place->run->AwaitAgent(place->index, deadline);
  if (!caller.ok()) return Fail(target, caller.error());
  begin(SshStep::kStartAgent);
  HelloScanner scanner(place->run->nonce());
  const int stream = caller->stream.get();
  auto link = std::make_unique<Link>(*std::move(place), *std::move(caller));
  if (const Result<void> hello = AwaitHello(stream, scanner, deadline); !hello.ok()) {
    return Fail(target, {ExitCode::kUnavailable,
                         "the agent " + hello.error().message + ItSaid(link->StderrTail())});
  }
  if (scanner.build_id() != options_.agent.build_id) {
    return Fail(target, {ExitCode::kUnavailable,
                         "the agent there is of build " + scanner.build_id() + ", not " +
                             options_.agent.build_id +
                             "; remove ~/.cache/dslaunch on the node and try again"});
  }
  begin(SshStep::kRunning);
  return std::unique_ptr<NodeLink>(std::move(link));
}

}  // namespace dslaunch
