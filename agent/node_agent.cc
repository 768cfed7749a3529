#include "agent/node_agent.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "agent/gpus.h"
#include "agent/orphan_sweep.h"
#include "agent/subprocess.h"
#include "agent/worker_specs.h"
#include "proto/contract/signal_name.h"
#include "proto/contract/status_line.h"
#include "rendezvous/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kDefaultTick(500);
constexpr milliseconds kKeeperTellsWithin(1000);
constexpr milliseconds kGoodbyeWithin(30'000);  // of a front end that heard that all is done
constexpr milliseconds kQuitWait(1000);         // for the other nodes to hear of our end
constexpr milliseconds kStall(500);  // a timer this late means that this process stood still

// What this node gives to programs. sshd's own variables stay out: by them bash takes a worker for
// a login and reads .bashrc, whatever that prints.
Environment NodeEnvironment() {
  Environment environment = CurrentEnvironment();
  std::erase_if(environment, [](const std::string& entry) {
    return entry.starts_with("SSH_CLIENT=") || entry.starts_with("SSH_CONNECTION=") ||
           entry.starts_with("SSH_TTY=");
  });
  return environment;
}

std::string ReadSmallFile(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string NamespaceId(const char* path) {
  struct stat info {};
  return stat(path, &info) == 0 ? std::to_string(info.st_ino) : "";
}

// Containers share boot_id with their host and with each other; namespaces tell them apart.
std::string NodeIdentity() {
  return ReadSmallFile("/proc/sys/kernel/random/boot_id") + NamespaceId("/proc/self/ns/pid") + "," +
         NamespaceId("/proc/self/ns/net");
}

std::string CauseText(const pb::Cause& cause) {
  if (cause.kind() == pb::Cause::NONE) return "every rank ended well";
  if (!cause.message().empty()) return cause.message();
  return "rank " + std::to_string(cause.rank()) + " failed, exit code " +
         std::to_string(cause.exit_code());
}

}  // namespace

NodeAgent::NodeAgent(asio::io_context& loop, int control_fd)
    : loop_(loop),
      tick_timer_(loop),
      keeper_(
          loop, UniqueFd(control_fd), [this](std::string_view bytes) { OnKeeperMessage(bytes); },
          [this](const std::string&) { OnKeeperGone(); }),
      events_(loop) {
  Tick();
}

NodeAgent::~NodeAgent() = default;

// --- The front end's calls ---

pb::PrepareReply NodeAgent::Prepare(const pb::PrepareRequest& request) {
  pb::PrepareReply reply;
  Result<pb::NodeFacts> facts = TryPrepare(request);
  if (facts.ok()) {
    *reply.mutable_facts() = *std::move(facts);
  } else {
    reply.mutable_failure()->set_exit_code(ToInt(facts.error().code));
    reply.mutable_failure()->set_message(facts.error().message);
  }
  return reply;
}

Result<pb::NodeFacts> NodeAgent::TryPrepare(const pb::PrepareRequest& request) {
  if (prepared_) return Error{ExitCode::kInternal, "the agent was prepared twice"};
  if (request.node_index() >= static_cast<uint32_t>(request.nodes_size()) ||
      request.program().argv_size() == 0) {
    return Error{ExitCode::kInternal, "the front end sent an incomplete job"};
  }
  prepare_ = request;
  environment_ = MergeEnvironment(NodeEnvironment(), request.program().env());
  DSL_TRY_ASSIGN(program_, ResolveProgram(request.program(), environment_, node_name()));
  DSL_TRY_ASSIGN(folder_,
                 JobFolder::Create(request.log_dir(), request.job_id(), node_name(), environment_));
  DSL_TRY(log_.Open(folder_->path() + "/agent.log"));
  log_.Write("job " + request.job_id() + ", node " + node_name() + ": prepared to run " +
             program_.argv.front() + " in " + program_.cwd);

  pb::KeeperRequest configure;
  configure.mutable_configure()->set_job_id(request.job_id());
  configure.mutable_configure()->set_grace_ms(request.timeouts().grace_ms());
  configure.mutable_configure()->set_teardown_ms(request.timeouts().teardown_ms());
  configure.mutable_configure()->set_agent_dead_ms(request.timeouts().dead_ms());
  SendToKeeper(configure);

  pb::NodeFacts facts;
  facts.set_job_dir(folder_->path());
  facts.set_gpus(
      static_cast<uint32_t>(CountVisibleGpus(FindVariable(environment_, "CUDA_VISIBLE_DEVICES"))));
  if (request.node_index() == request.rendezvous_node()) {
    DSL_TRY_ASSIGN(master_port_, ReservePort(static_cast<int>(request.master_port())));
    CoordinatorOptions options;
    options.job_id = request.job_id();
    options.nodes.assign(request.nodes().begin(), request.nodes().end());
    options.timeouts = request.timeouts();
    options.one_machine = request.local();
    DSL_TRY_ASSIGN(server_, RendezvousServer::Start(std::move(options), request.credentials()));
    for (const std::string& endpoint : server_->endpoints())
      facts.add_rendezvous_endpoints(endpoint);
  }
  prepared_ = true;
  return facts;
}

void NodeAgent::Run(const pb::RunRequest& request, std::shared_ptr<EventSink> sink) {
  run_ = request;
  events_.Attach(std::move(sink));
  if (stopping_) return;  // before it ran
  if (server_) {
    Join(RendezvousRoute{server_->InProcessChannel(), ""});
    return;
  }
  const std::vector<std::string> endpoints(request.rendezvous_endpoints().begin(),
                                           request.rendezvous_endpoints().end());
  std::thread([this, endpoints, job_id = prepare_.job_id(), credentials = prepare_.credentials(),
               deadline = Deadline::After(milliseconds(prepare_.timeouts().join_ms()))] {
    Result<RendezvousRoute> route = FindRendezvous(endpoints, job_id, credentials, deadline);
    asio::post(loop_, [this, route = std::move(route)]() mutable { Join(std::move(route)); });
  }).detach();
}

void NodeAgent::Stop(const pb::StopRequest& request) {
  StopJob(request.cause(), request.kill_now());
}

void NodeAgent::Signal(int signal_number) {
  pb::KeeperRequest request;
  request.mutable_signal()->set_signal(signal_number);
  SendToKeeper(request);
}

// --- The rendezvous ---

void NodeAgent::Join(Result<RendezvousRoute> route) {
  if (stopping_) return;
  if (!route.ok()) {
    closed_ = true;
    return BeginStop(MakeCause(pb::Cause::TIMED_OUT, prepare_.node_index(), route.error().code,
                               node_name() + ": " + route.error().message));
  }
  log_.Write("joining the rendezvous " +
             (route->address.empty() ? "in this process" : "at " + route->address));
  rendezvous_address_ = route->address;
  rendezvous_heard_ = Clock::now();
  client_ = std::make_unique<RendezvousClient>(
      route->channel,
      [this](pb::RendezvousMessage message) {
        asio::post(loop_, [this, message = std::move(message)] { OnRendezvousMessage(message); });
      },
      [this](std::string why) {
        asio::post(loop_, [this, why = std::move(why)] { OnRendezvousEnd(why); });
      });
  pb::AgentMessage message;
  pb::Join& join = *message.mutable_join();
  join.set_slots(prepare_.nodes(static_cast<int>(prepare_.node_index())).slots());
  join.set_identity(NodeIdentity());
  join.set_reached_at(rendezvous_address_);
  join.set_master_port(static_cast<uint32_t>(master_port_.port));
  SendToRendezvous(std::move(message));
}

void NodeAgent::OnRendezvousMessage(const pb::RendezvousMessage& message) {
  rendezvous_heard_ = Clock::now();
  switch (message.message_case()) {
    case pb::RendezvousMessage::kAssignment:
      if (!stopping_ && epoch_ == 0) StartWorkers(message);
      break;
    case pb::RendezvousMessage::kAllReady: {
      pb::NodeEvent event;
      event.mutable_running()->set_epoch(message.epoch());
      events_.Emit(std::move(event));
      break;
    }
    case pb::RendezvousMessage::kStop:
      BeginStop(message.stop().cause());
      break;
    case pb::RendezvousMessage::kRefused:
      BeginStop(message.refused().cause());
      OnClosed(/*complete=*/false);
      break;
    case pb::RendezvousMessage::kClosed:
      OnClosed(message.closed().complete());
      break;
    default:
      break;
  }
}

void NodeAgent::OnRendezvousEnd(const std::string& why) {
  if (closed_) return;
  BeginStop(
      MakeCause(pb::Cause::NODE_LOST, 0, ExitCode::kUnavailable,
                prepare_.nodes(0).name() + " was lost: its rendezvous broke off (" + why + ")"));
  OnClosed(/*complete=*/false);
}

void NodeAgent::OnClosed(bool complete) {
  if (std::exchange(closed_, true)) return;
  log_.Write(complete ? "every node is empty" : "not every node said that it is empty");
  teardown_complete_ = complete;
  EndIfAllIsSaid();
  QuitIfIdle();
}

void NodeAgent::SendToRendezvous(pb::AgentMessage message) {
  if (!client_ || closed_) return;
  message.set_job_id(prepare_.job_id());
  message.set_epoch(epoch_);
  message.set_node_index(prepare_.node_index());
  client_->Send(std::move(message));
}

// --- Workers ---

void NodeAgent::StartWorkers(const pb::RendezvousMessage& message) {
  epoch_ = message.epoch();
  WorkerPlan plan;
  plan.job_id = prepare_.job_id();
  plan.epoch = epoch_;
  plan.assignment = message.assignment();
  plan.slots = prepare_.nodes(static_cast<int>(prepare_.node_index())).slots();
  plan.device = prepare_.device();
  plan.use_cuda = run_.use_cuda();
  if (prepare_.local()) plan.first_device = message.assignment().first_rank();
  plan.rendezvous_address = rendezvous_address_;
  plan.cores = static_cast<int>(std::thread::hardware_concurrency());
  Result<pb::SpawnWorkers> specs = MakeWorkerSpecs(plan, program_, environment_, *folder_);
  if (!specs.ok()) {
    return StopJob(MakeCause(pb::Cause::START_FAILED, prepare_.node_index(), specs.error().code,
                             specs.error().message));
  }
  for (const pb::WorkerSpec& spec : specs->workers()) {
    Worker worker;
    worker.rank = spec.rank();
    worker.folder = spec.stdout_path().substr(0, spec.stdout_path().rfind('/'));
    workers_.push_back(std::move(worker));
  }
  log_.Write("epoch " + std::to_string(epoch_) + ": starting " + std::to_string(plan.slots) +
             " of " + std::to_string(plan.assignment.world_size()) + " ranks from rank " +
             std::to_string(plan.assignment.first_rank()) + ", MASTER_ADDR " +
             plan.assignment.master_addr() + ", MASTER_PORT " +
             std::to_string(plan.assignment.master_port()));
  pb::KeeperRequest request;
  *request.mutable_spawn() = *std::move(specs);
  SendToKeeper(request);

  pb::NodeEvent event;
  pb::Started& started = *event.mutable_started();
  started.set_epoch(epoch_);
  started.set_first_rank(message.assignment().first_rank());
  started.set_world_size(message.assignment().world_size());
  started.set_master_addr(message.assignment().master_addr());
  started.set_master_port(message.assignment().master_port());
  events_.Emit(std::move(event));
}

void NodeAgent::OnKeeperMessage(std::string_view bytes) {
  pb::KeeperEvent event;
  if (!event.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return OnKeeperGone();
  switch (event.event_case()) {
    case pb::KeeperEvent::kSpawned:
      return OnSpawned(event.spawned());
    case pb::KeeperEvent::kSpawnFailed:
      return OnSpawnFailed(event.spawn_failed());
    case pb::KeeperEvent::kExited:
      return OnWorkerExited(event.exited());
    case pb::KeeperEvent::kStopped:
      return OnWorkerStopped(event.stopped());
    case pb::KeeperEvent::kStatus:
      return OnStatus(event.status());
    case pb::KeeperEvent::kAllReaped:
      return OnAllReaped(event.all_reaped());
    case pb::KeeperEvent::kFrontEndGone:
      return OnFrontEndGone();
    case pb::KeeperEvent::kWorkersCgroup:
      return OnWorkersCgroup(event.workers_cgroup());
    default:
      return;
  }
}

void NodeAgent::OnWorkersCgroup(const pb::WorkersCgroup& cgroup) {
  workers_cgroup_ = cgroup.folder();
  log_.Write(workers_cgroup_.empty() ? "no cgroup for the workers: " + cgroup.none_because()
                                     : "the workers' cgroup is " + workers_cgroup_);
}

void NodeAgent::OnSpawned(const pb::WorkerSpawned& spawned) {
  workers_.at(spawned.local_rank()).pid = spawned.pid();
  const Worker& worker = workers_[spawned.local_rank()];
  if (run_.stream_all() || std::ranges::count(run_.stream_ranks(), worker.rank) > 0) {
    events_.Follow(worker.rank, /*is_stderr=*/false, worker.folder + "/stdout.log");
    events_.Follow(worker.rank, /*is_stderr=*/true, worker.folder + "/stderr.log");
  }
  if (++spawned_ < workers_.size()) return;
  pb::AgentMessage message;
  message.mutable_ready();
  SendToRendezvous(std::move(message));
}

void NodeAgent::OnSpawnFailed(const pb::SpawnFailed& failed) {
  const bool is_program = failed.step() == "execve";
  pb::Cause cause = MakeCause(pb::Cause::START_FAILED, prepare_.node_index(),
                              is_program ? ExitCode::kCannotExecute : ExitCode::kInternal,
                              node_name() + ": cannot start " + program_.argv.front() + " (" +
                                  failed.step() + "): " + strerror(failed.error_number()));
  cause.set_rank(static_cast<int>(workers_.at(failed.local_rank()).rank));
  cause.set_local_rank(static_cast<int>(failed.local_rank()));
  workers_[failed.local_rank()].ended = true;
  StopJob(cause);
}

void NodeAgent::OnWorkerExited(const pb::WorkerExited& exited) {
  Worker& worker = workers_.at(exited.local_rank());
  worker.ended = true;
  log_.Write("rank " + std::to_string(worker.rank) + " (pid " + std::to_string(worker.pid) + ") " +
             (exited.signal() != 0 ? "was ended by " + SignalName(exited.signal())
                                   : "exited with " + std::to_string(exited.exit_code())));
  const bool well = exited.signal() == 0 && exited.exit_code() == 0;
  const bool is_failure = !well && !exited.stopping() && !stopping_;

  pb::NodeEvent event;
  pb::WorkerEnded& ended = *event.mutable_worker_ended();
  ended.set_epoch(epoch_);
  ended.set_rank(worker.rank);
  ended.set_local_rank(exited.local_rank());
  ended.set_exit_code(exited.exit_code());
  ended.set_signal(exited.signal());
  ended.set_core_dumped(exited.core_dumped());
  ended.set_stopping(exited.stopping() || stopping_);
  if (is_failure) {
    std::string log = worker.folder + "/stderr.log";
    std::string last_lines = LastLines(log);
    if (last_lines.empty()) {
      log = worker.folder + "/stdout.log";
      last_lines = LastLines(log);
    }
    ended.set_last_lines(std::move(last_lines));
    ended.set_log_path(std::move(log));
  }
  events_.Emit(std::move(event));

  if (well && ++ended_well_ == workers_.size() && !stopping_) {
    pb::AgentMessage message;
    message.mutable_finished();
    SendToRendezvous(std::move(message));
  }
  if (!is_failure) return;
  pb::AgentMessage message;
  pb::Cause& cause = *message.mutable_worker_failed()->mutable_cause();
  cause = MakeCause(exited.signal() != 0 ? pb::Cause::WORKER_SIGNAL : pb::Cause::WORKER_EXIT,
                    prepare_.node_index(), ExitCode::kInternal, "");
  cause.set_rank(static_cast<int>(worker.rank));
  cause.set_local_rank(static_cast<int>(exited.local_rank()));
  cause.set_signal(exited.signal());
  cause.set_exit_code(exited.signal() != 0 ? ExitCodeForSignal(exited.signal())
                                           : exited.exit_code());
  SendToRendezvous(std::move(message));
}

void NodeAgent::OnWorkerStopped(const pb::WorkerStopped& stopped) {
  const Worker& worker = workers_.at(stopped.local_rank());
  pb::NodeEvent event;
  std::string text = "rank " + std::to_string(worker.rank) + " (" + node_name() + ", pid " +
                     std::to_string(worker.pid) + ") ";
  text += stopped.signal() == 0 ? "goes on"
                                : "was stopped by " + SignalName(stopped.signal()) +
                                      "; the others wait for it until it is continued (kill -CONT)";
  event.mutable_notice()->set_message(std::move(text));
  events_.Emit(std::move(event));
}

void NodeAgent::OnStatus(const pb::StatusBytes& status) {
  std::string_view rest = status.data();
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (!StatusLine::Parse(line)) continue;
    events_.EmitStatus(workers_.at(status.local_rank()).rank, std::string(line));
  }
}

// --- The end ---

void NodeAgent::StopJob(const pb::Cause& cause, bool kill_now) {
  pb::AgentMessage message;
  *message.mutable_stop()->mutable_cause() = cause;
  SendToRendezvous(std::move(message));
  if (!client_) closed_ = true;
  BeginStop(cause, kill_now);
}

void NodeAgent::BeginStop(const pb::Cause& cause, bool kill_now) {
  const bool again = std::exchange(stopping_, true);
  if (again && !kill_now) return;
  log_.Write(std::string(kill_now ? "killing" : "stopping") + ": " + CauseText(cause));
  if (!again) {
    pb::NodeEvent event;
    event.mutable_outcome()->set_epoch(epoch_);
    *event.mutable_outcome()->mutable_cause() = cause;
    events_.Emit(std::move(event));
  }
  pb::KeeperRequest request;
  request.mutable_stop()->set_kill_now(kill_now);
  SendToKeeper(request);
}

void NodeAgent::OnAllReaped(const pb::AllReaped& reaped) {
  if (std::exchange(reaped_, true)) return;
  log_.Write(reaped.left_size() == 0 ? "every process is reaped"
                                          : "processes are left that could not be ended");
  left_.assign(reaped.left().begin(), reaped.left().end());
  quit_at_ = Clock::now() + kQuitWait;
  pb::AgentMessage message;
  message.mutable_torn_down()->mutable_left()->Add(left_.begin(), left_.end());
  SendToRendezvous(std::move(message));
  EndIfAllIsSaid();
  QuitIfIdle();
}

void NodeAgent::OnFrontEndGone() {
  if (std::exchange(front_end_gone_, true)) return;
  log_.Write("the front end is gone");
  events_.Detach();
  if (!events_.ended() && prepared_) {
    StopJob(MakeCause(pb::Cause::FRONT_END_LOST, prepare_.node_index(), ExitCode::kUnavailable,
                      "the front end vanished"));
  }
  QuitIfIdle();
}

void NodeAgent::OnKeeperGone() {
  if (std::exchange(keeper_gone_, true)) return;
  // The keeper was our way to the front end; the workers died with it, what they started did not.
  front_end_gone_ = true;
  events_.Detach();
  if (!prepared_) return loop_.stop();
  StopJob(MakeCause(pb::Cause::NODE_LOST, prepare_.node_index(), ExitCode::kUnavailable,
                    node_name() + " was lost: its keeper process was killed"));
  Orphans orphans = {
      .job_id = prepare_.job_id(), .session = getsid(0), .cgroup = workers_cgroup_};
  for (const Worker& worker : workers_) {
    if (worker.pid > 0 && !worker.ended) orphans.groups.push_back(worker.pid);
  }
  pb::AllReaped reaped;
  LadderOptions ladder;
  ladder.grace = milliseconds(prepare_.timeouts().grace_ms());
  ladder.teardown = milliseconds(prepare_.timeouts().teardown_ms());
  *reaped.mutable_left() = SweepOrphans(orphans, ladder);
  OnAllReaped(reaped);
}

// With nobody left to serve the agent goes: once this node is empty and the rendezvous knows it.
void NodeAgent::QuitIfIdle() {
  if (!front_end_gone_) return;
  const bool told = closed_ || (quit_at_ && Clock::now() >= *quit_at_);
  if (!prepared_ || (reaped_ && told)) loop_.stop();
}

void NodeAgent::EndIfAllIsSaid() {
  if (!reaped_ || !closed_) return;
  pb::NodeDone done;
  done.set_teardown_complete(teardown_complete_);
  done.mutable_left()->Add(left_.begin(), left_.end());
  events_.End(std::move(done));
}

void NodeAgent::OnStreamOver() {
  if (!stream_over_at_) stream_over_at_ = Clock::now();
  events_.Detach();
}

// --- Time ---

void NodeAgent::Tick() {
  pb::KeeperRequest alive;
  alive.mutable_alive();
  SendToKeeper(alive);
  if (server_) server_->Tick();
  milliseconds interval = kDefaultTick;
  if (prepared_) {
    interval = milliseconds(prepare_.timeouts().heartbeat_ms()) / 2;
    pb::AgentMessage heartbeat;
    heartbeat.mutable_heartbeat();
    SendToRendezvous(std::move(heartbeat));
    CheckSilence(Clock::now() > tick_timer_.expiry() + kStall);
  }
  QuitIfIdle();
  tick_timer_.expires_after(interval);
  tick_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) Tick();
  });
}

void NodeAgent::CheckSilence(bool tick_was_late) {
  const Clock::time_point now = Clock::now();
  // When this process stood still, its messages still wait to be read: they get another turn.
  if (tick_was_late) rendezvous_heard_ = now;
  if (client_ && !closed_ &&
      now - rendezvous_heard_ >= milliseconds(prepare_.timeouts().dead_ms())) {
    OnRendezvousEnd("it was silent");
  }
  const milliseconds patience = events_.ended() ? kGoodbyeWithin : kKeeperTellsWithin;
  if (stream_over_at_ && now - *stream_over_at_ >= patience) OnFrontEndGone();
}

void NodeAgent::SendToKeeper(const pb::KeeperRequest& request) {
  if (!keeper_gone_) keeper_.Send(request);
}

}  // namespace dslaunch
