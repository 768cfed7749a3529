#include "cli/transport/ssh/transport_ssh.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <asio/post.hpp>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/errno_text.h"
#include "base/mutex.h"
#include "base/os/socket_pair.h"
#include "base/os/start_thread.h"
#include "base/os/subprocess.h"
#include "cli/transport/loop_thread.h"
#include "cli/transport/resumable_link.h"
#include "cli/transport/ssh/ssh_bootstrap.h"
#include "cli/transport/ssh/ssh_node_command.h"
#include "cli/transport/transport_command.h"

namespace dslaunch {
namespace {

// Extra time for the session's own error message, which is more precise than the message of the
// link.
constexpr milliseconds kMessageGrace{200};

SshLink::StartFn StartInRole(const AgentBinary& agent, const AgentRole& role) {
  return [agent, role](SshSession& session, TailBuffer& stderr_tail, Deadline by) {
    return StartAgent(session, agent, role, stderr_tail, by);
  };
}

// Opens a link and returns its connection. `end` is set only if `use` is kOnLoop.
Result<ResumableLink::Connection> OpenLink(const NodeTarget& target, const SshOptions& options,
                                           const SshLink::StartFn& start, Deadline deadline,
                                           SshLink::Use use) {
  DSL_TRY_ASSIGN(std::shared_ptr<LoopThread> loop, SshLoop());
  DSL_TRY_ASSIGN(std::unique_ptr<SshLink> link,
                 SshLink::Open(target, options, start, deadline, /*outer=*/nullptr, use));
  std::unique_ptr<StreamEnd> end = link->TakeEnd();
  return ResumableLink::Connection{std::move(loop), std::move(link), std::move(end)};
}

// Returns a function that logs in to the same host again, as the same user and with the same
// options.
ResumableLink::ReconnectFn ResumeOver(const NodeTarget& target, SshOptions options,
                                      const AgentBinary& agent) {
  options.on_step = {};  // the progress of a reconnection is not shown
  options.may_ask_again = false;
  return [target, options, agent](const std::string& socket,
                                  Deadline by) -> Result<ResumableLink::Connection> {
    return OpenLink(target, options, StartInRole(agent, ResumeRole(socket)), by,
                    SshLink::Use::kOnLoop);
  };
}

}  // namespace

// The state that a link shares with its login thread. The thread outlives its link only if it is
// stuck in the resolver or in an ssh-agent that does not answer.
struct SshLink::State {
  SshControl control;
  UniqueFd stop;     // eventfd that stops the login when it is written
  SocketPair local;  // one end for TakeFd(), the other for the pump; unused for Use::kOnLoop
  TailBuffer stderr_tail;
  std::shared_ptr<LoopThread> loop;
  std::string address;  // numeric address of the node, set before Open returns the link

  mutable Mutex mutex;
  CondVar changed;
  std::optional<Result<std::unique_ptr<SshSession>>> logged_in DSL_GUARDED_BY(mutex);
  std::optional<PumpEnd> end DSL_GUARDED_BY(mutex);
  bool stopped DSL_GUARDED_BY(mutex) = false;
  // Set once the command runs. The pump is destroyed first, on the loop.
  std::unique_ptr<SshSession> session DSL_GUARDED_BY(mutex);
  std::unique_ptr<SshStream> stream DSL_GUARDED_BY(mutex);
  std::shared_ptr<SshPump> pump DSL_GUARDED_BY(mutex);
  // The stream's end that TakeEnd() returns; used on the loop.
  std::unique_ptr<StreamEnd> outer_end DSL_GUARDED_BY(mutex);

  // Creates the objects that a login and its stream need. Called once, before other threads use
  // this state.
  Result<void> Init(const NodeTarget& target, Use use) {
    DSL_TRY_ASSIGN(loop, SshLoop());
    if (use == Use::kSocket) {
      Result<SocketPair> pair = MakeSocketPair();
      if (!pair.ok()) {
        return Error{ExitCode::kUnavailable, "node '" + target.name + "': " + pair.error().message};
      }
      local = *std::move(pair);
    }
    stop.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (stop) return {};
    return Error{ExitCode::kUnavailable,
                 "node '" + target.name + "': eventfd: " + ErrnoText(errno)};
  }
  // Returns the pump's end of the local stream.
  std::unique_ptr<StreamEnd> MakeLocal() DSL_REQUIRES(mutex) {
    if (local.theirs) return MakeStreamEnd(*loop->context(), std::move(local.theirs));
    auto [inner, outer] = MakeStreamPair(*loop->context());
    outer_end = std::move(outer);
    return std::move(inner);
  }
  // Stops the login and all later operations.
  void RequestStop() {
    const MutexLock lock(mutex);
    stopped = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(stop.get(), &one, sizeof one);
  }
  // Stores the result of the login. Destroys the session if the link was stopped before.
  void SetLoggedIn(Result<std::unique_ptr<SshSession>> result) {
    const MutexLock lock(mutex);
    if (stopped) return;
    logged_in = std::move(result);
    changed.NotifyAll();
  }
  void SetEnd(PumpEnd how) {
    const MutexLock lock(mutex);
    end = std::move(how);
    changed.NotifyAll();
  }
};

SshLink::SshLink(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<SshLink>> SshLink::Open(const NodeTarget& target, const SshOptions& options,
                                               const StartFn& start, Deadline deadline,
                                               SshControl* outer, Use use) {
  auto state = std::make_shared<State>();
  DSL_TRY(state->Init(target, use));
  SshControl& control = state->control;
  control.stop_fd = state->stop.get();
  control.on_step = options.on_step;
  control.outer = outer;
  DSL_TRY_ASSIGN(std::thread login, StartThread(
                                        [state, target, options, deadline] {
                                          state->SetLoggedIn(SshSession::Open(
                                              target, options, deadline, state->control));
                                        },
                                        "for node '" + target.name + "'"));
  std::unique_ptr<SshLink> link(new SshLink(state));
  const auto granted = [&] {
    return Deadline::At(deadline.when() + milliseconds(control.granted_ms));
  };

  MutexLock lock(state->mutex);
  const auto has_answer = [&]() DSL_REQUIRES(state->mutex) { return state->logged_in.has_value(); };
  while (!has_answer()) {
    if (outer != nullptr) {
      state->changed.Wait(state->mutex, has_answer);
      break;
    }
    const Deadline by = granted();
    state->changed.WaitUntil(state->mutex, by.when() + kMessageGrace, has_answer);
    if (has_answer() || granted().when() > by.when()) continue;
    login.detach();  // the destructor requests the stop of the login
    return Error{ExitCode::kUnavailable, SubjectOf(target, options) + " (" + target.host +
                                             "): " + TimedOutAt(control.step)};
  }
  Result<std::unique_ptr<SshSession>> session = *std::move(state->logged_in);
  state->logged_in.reset();
  lock.Unlock();
  // Join the thread now, so that neither its stack nor its malloc arena is kept for the life of the
  // node.
  login.join();
  if (!session) return session.error();

  control.Begin(ConnectStep::kStartAgent);
  DSL_TRY_ASSIGN(std::unique_ptr<SshStream> stream,
                 start(**session, state->stderr_tail, granted()));
  control.Begin(ConnectStep::kRunning);
  link->Pump(*std::move(session), std::move(stream));
  return link;
}

void SshLink::Pump(std::unique_ptr<SshSession> session, std::unique_ptr<SshStream> stream) {
  const MutexLock lock(state_->mutex);
  state_->address = session->address();
  state_->session = std::move(session);
  state_->stream = std::move(stream);
  state_->pump = std::make_shared<SshPump>(
      *state_->loop->context(), *state_->session, *state_->stream, state_->MakeLocal(),
      [state = state_](PumpEnd how) { state->SetEnd(std::move(how)); });
  state_->control.stop_fd = -1;  // no wait uses the descriptor any more
  state_->control.on_step = {};
  state_->stop.Reset();
  asio::post(*state_->loop->context(), [pump = state_->pump] { pump->Start(); });
}

SshLink::~SshLink() {
  state_->RequestStop();
  std::shared_ptr<SshPump> pump;
  std::unique_ptr<SshSession> session;
  std::unique_ptr<SshStream> stream;  // declared after `session`, so that it is destroyed first
  std::unique_ptr<StreamEnd> end;
  {
    const MutexLock lock(state_->mutex);
    pump = std::move(state_->pump);
    session = std::move(state_->session);
    stream = std::move(state_->stream);
    end = std::move(state_->outer_end);
  }
  if (!pump) return;
  state_->loop->Run([&pump, &end] {
    pump->Stop();
    end.reset();
  });
}

UniqueFd SshLink::TakeFd() { return std::move(state_->local.ours); }

std::unique_ptr<StreamEnd> SshLink::TakeEnd() {
  const MutexLock lock(state_->mutex);
  return std::move(state_->outer_end);
}

void SshLink::Abort(const std::string&) {
  std::shared_ptr<SshPump> pump;
  {
    const MutexLock lock(state_->mutex);
    pump = state_->pump;
  }
  if (pump) state_->loop->Run([&pump] { pump->ShutLocal(); });
}

bool SshLink::WaitEnd(Deadline deadline) {
  const MutexLock lock(state_->mutex);
  state_->changed.WaitUntil(state_->mutex, deadline.when(), [this]() DSL_REQUIRES(state_->mutex) {
    return state_->end.has_value();
  });
  return state_->end.has_value() && state_->end->closed_by_node;
}

std::string SshLink::StderrTail() const { return state_->stderr_tail.Get(); }

std::string SshLink::Address() const { return state_->address; }

std::optional<PumpEnd> SshLink::End() const {
  const MutexLock lock(state_->mutex);
  return state_->end;
}

Result<SshOptions> MakeSshOptions(const std::vector<std::string>& ssh_command) {
  SshOptions options;
  options.command = ssh_command;
  if (ssh_command.empty()) return options;
  options.command.front() = FindProgram(ssh_command.front());
  if (!options.command.front().empty()) return options;
  return Error{ExitCode::kUsage, "--ssh_command: there is no program '" + ssh_command.front() +
                                     "' in PATH; give its path"};
}

AgentRole SshTransport::Role() const {
  AgentRole role = role_;
  role.resumable = role.kind == AgentRole::Kind::kJob || role.kind == AgentRole::Kind::kDetachable;
  return role;
}

Result<std::unique_ptr<NodeLink>> SshTransport::Connect(const NodeTarget& target,
                                                        Deadline deadline) {
  if (!options_.command.empty()) return ConnectByProgram(options_.command, "", target, deadline);
  const AgentRole role = Role();
  SshOptions options = options_;
  options.unsupported = std::make_shared<std::atomic<const char*>>(nullptr);
  const milliseconds limit = deadline.Left();
  Result<ResumableLink::Connection> opened =
      OpenLink(target, options, StartInRole(agent_, role), deadline,
               role.resumable ? SshLink::Use::kOnLoop : SshLink::Use::kSocket);
  if (opened && role.resumable)
    return ResumableLink::Open(*std::move(opened), ResumeOver(target, options_, agent_));
  if (opened) return std::move(opened->link);
  const char* const why = *options.unsupported;
  const std::string ssh = why != nullptr ? FindProgram("ssh") : "";
  if (ssh.empty()) return opened.error();
  std::vector<std::string> words = {ssh, "-o", "BatchMode=yes"};
  if (!options_.config_file.empty()) words.insert(words.end(), {"-F", options_.config_file});
  Result<std::unique_ptr<NodeLink>> other =
      ConnectByProgram(std::move(words),
                       "nodes are reached by the system's ssh, because " + std::string(why) + " (" +
                           target.name + "); --ssh_command ssh does so at once",
                       target, Deadline::After(limit));
  if (other) return other;
  return Error{other.error().code, opened.error().message +
                                       "; the system's ssh was tried too, because " + why + ": " +
                                       other.error().message};
}

Result<std::unique_ptr<NodeLink>> SshTransport::ConnectByProgram(std::vector<std::string> words,
                                                                 const std::string& notice,
                                                                 const NodeTarget& target,
                                                                 Deadline deadline) const {
  const AgentRole role = Role();
  const auto command = std::make_shared<SshNodeCommand>(std::move(words), options_.configs);
  CommandTransport transport(agent_, command, role, options_.on_step);
  transport.SetNotice(notice);
  DSL_TRY_ASSIGN(std::unique_ptr<NodeLink> link, transport.Connect(target, deadline));
  if (!role.resumable) return link;
  DSL_TRY_ASSIGN(ResumableLink::Connection first, ResumableLink::Over(std::move(link)));
  return ResumableLink::Open(
      std::move(first),
      [agent = agent_, command, target](const std::string& socket,
                                        Deadline by) -> Result<ResumableLink::Connection> {
        CommandTransport again(agent, command, ResumeRole(socket));
        DSL_TRY_ASSIGN(std::unique_ptr<NodeLink> next, again.Connect(target, by));
        return ResumableLink::Over(std::move(next));
      });
}

}  // namespace dslaunch
