#include "agent/node_agent.h"

#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "agent/gpus.h"
#include "agent/job_result.h"
#include "agent/logout.h"
#include "agent/node_identity.h"
#include "agent/oom.h"
#include "agent/orphan_sweep.h"
#include "agent/thread_states.h"
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
constexpr size_t kMaxThreadLines = 8;           // for each rank that hangs
constexpr milliseconds kClosedTravels(500);     // what the rendezvous said last, to the others
constexpr milliseconds kViewersWait(2000);      // for viewers to take their last events
constexpr int kLoopPatience = 5;                // times dead_ms; a disk may take that long
constexpr milliseconds kMoveSlack(10'000);      // beyond what the front end waits before it moves
constexpr milliseconds kStall(500);  // a timer this late means that this process stood still

int64_t UnixMs(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count();
}

std::string CauseText(const pb::Cause& cause) {
  if (cause.kind() == pb::Cause::NONE) return "every rank ended well";
  if (!cause.message().empty()) return cause.message();
  return "rank " + std::to_string(cause.rank()) + " failed, exit code " +
         std::to_string(cause.exit_code());
}

}  // namespace

NodeAgent::NodeAgent(asio::io_context& loop, int control_fd, std::function<void(UniqueFd)> serve)
    : loop_(loop),
      tick_timer_(loop),
      keeper_(
          loop, UniqueFd(control_fd), [this](std::string_view bytes) { OnKeeperMessage(bytes); },
          [this](const std::string&) { OnKeeperGone(); }),
      events_(loop),
      serve_(std::move(serve)) {
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
  const auto nodes = static_cast<uint32_t>(request.nodes_size());
  if (request.node_index() >= nodes || request.rendezvous_node() >= nodes ||
      request.program().argv_size() == 0) {
    return Error{ExitCode::kInternal, "the front end sent an incomplete job"};
  }
  prepare_ = request;
  environment_ = MergeEnvironment(NodeEnvironment(), request.program().env());
  DSL_TRY_ASSIGN(program_, ResolveProgram(request.program(), environment_, node_name()));
  DSL_TRY_ASSIGN(folder_,
                 JobFolder::Create(request.log_dir(), request.job_id(), node_name(), environment_));
  DSL_TRY(log_.Open(folder_->path() + "/agent.log"));
  log_keeping_.emplace(node_name(), request.log_max_bytes());
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
  if (request.detachable()) {
    DSL_TRY_ASSIGN(
        attach_socket_,
        AttachSocket::Listen(loop_, SocketFolders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid()),
                             SocketName(request.job_id(), request.node_index()), serve_));
    const std::string warning = LogoutWarning(ReadLogoutFacts(), node_name());
    if (!warning.empty()) Notify(warning);
  }
  DSL_TRY(ReserveMasterPort());
  if (request.node_index() == request.rendezvous_node()) {
    pb::MoveRequest nothing_before;
    *nothing_before.mutable_absent_nodes() = request.absent_nodes();
    DSL_TRY(OpenRendezvous(nothing_before));
    for (const std::string& endpoint : server_->endpoints())
      facts.add_rendezvous_endpoints(endpoint);
  }
  prepared_ = true;
  lease_renewed_ = Clock::now();
  link_ = std::make_unique<RendezvousLink>(
      loop_, request.job_id(), request.node_index(),
      [this](const pb::RendezvousMessage& message) { OnRendezvousMessage(message); },
      [this](const std::string& why) { OnRendezvousEnd(why); });
  heart_ = std::make_unique<Heartbeat>(milliseconds(request.timeouts().heartbeat_ms()) / 2,
                                       kLoopPatience * milliseconds(request.timeouts().dead_ms()),
                                       [this](bool loop_lives) { Beat(loop_lives); });
  return facts;
}

Result<void> NodeAgent::OpenRendezvous(const pb::MoveRequest& last) {
  CoordinatorOptions options;
  options.job_id = prepare_.job_id();
  options.nodes.assign(prepare_.nodes().begin(), prepare_.nodes().end());
  options.timeouts = prepare_.timeouts();
  options.policy = prepare_.policy();
  options.one_machine = prepare_.local();
  options.rendezvous_node = prepare_.node_index();
  options.absent_nodes.assign(last.absent_nodes().begin(), last.absent_nodes().end());
  options.epoch = last.epoch();
  options.restarts = last.restarts();
  options.epoch_ended_by = last.cause();
  DSL_TRY_ASSIGN(std::unique_ptr<RendezvousServer> server,
                 RendezvousServer::Start(std::move(options), prepare_.credentials()));
  const std::lock_guard lock(server_mutex_);
  server_ = std::move(server);
  return {};
}

void NodeAgent::Run(const pb::RunRequest& request, std::shared_ptr<EventSink> sink) {
  run_ = request;
  events_.Attach(
      {request.stream_all(), {request.stream_ranks().begin(), request.stream_ranks().end()}},
      std::move(sink));
  if (!stopping()) GoToRendezvous();  // else before it ran
}

void NodeAgent::GoToRendezvous() {
  if (server_) return Join(RendezvousRoute{server_->InProcessChannel(), ""});
  const std::vector<std::string> endpoints(run_.rendezvous_endpoints().begin(),
                                           run_.rendezvous_endpoints().end());
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

Result<std::string> NodeAgent::Detach() {
  if (!attach_socket_) {
    return Error{
        ExitCode::kUsage,
        node_name() + ": this job was not started with --detach, so it cannot be detached"};
  }
  if (!std::exchange(detached_, true)) {
    log_.Write("detached: the job no longer needs its front end; " + attach_socket_->path());
    pb::KeeperRequest request;
    request.mutable_detach();
    SendToKeeper(request);
    front_end_gone_ = true;
    detached_at_ = Clock::now();
    events_.Detach();
  }
  return attach_socket_->path();
}

void NodeAgent::Attach(const pb::AttachRequest& request, std::shared_ptr<EventSink> sink) {
  events_.AddViewer(request, std::move(sink));
}

void NodeAgent::OnViewerOver(const EventSink* sink) {
  events_.RemoveViewer(sink);
  QuitIfIdle();
}

pb::JobStatus NodeAgent::Status() const {
  pb::JobStatus status;
  status.set_job_id(prepare_.job_id());
  status.set_epoch(epoch_);
  status.set_restart_count(workers_.assignment().restart_count());
  status.set_phase(phase_ == Phase::kEmpty                   ? pb::JobStatus::ENDED
                   : phase_ == Phase::kStopping              ? pb::JobStatus::STOPPING
                   : events_.running()                       ? pb::JobStatus::RUNNING
                   : epoch_ > 1 || phase_ == Phase::kHalting ? pb::JobStatus::RESTARTING
                                                             : pb::JobStatus::JOINING);
  *status.mutable_cause() = outcome_;
  *status.mutable_node_indexes() = workers_.assignment().node_indexes();
  status.set_first_rank(workers_.assignment().first_rank());
  status.set_world_size(workers_.assignment().world_size());
  for (const EpochWorker& worker : workers_.all()) status.add_pids(worker.ended ? 0 : worker.pid);
  status.set_started_unix_ms(UnixMs(started_at_));
  if (ended_at_) status.set_ended_unix_ms(UnixMs(*ended_at_));
  if (folder_) status.set_job_dir(folder_->path());
  status.set_description(prepare_.description());
  for (const auto& [rank, line] : events_.newest_status()) {
    pb::WorkerStatus& newest = *status.add_status();
    newest.set_rank(rank);
    newest.set_line(line);
  }
  const pb::Timeouts& timeouts = prepare_.timeouts();
  status.set_stop_within_ms(timeouts.grace_ms() + timeouts.teardown_ms() + timeouts.dead_ms());
  return status;
}

// --- The rendezvous ---

void NodeAgent::Join(Result<RendezvousRoute> route) {
  if (stopping()) return;
  if (!route.ok()) {
    closed_ = true;
    return BeginStop(MakeCause(pb::Cause::TIMED_OUT, prepare_.node_index(), route.error().code,
                               node_name() + ": " + route.error().message));
  }
  log_.Write("joining the rendezvous " +
             (route->address.empty() ? "in this process" : "at " + route->address));
  pb::Join join;
  join.set_slots(own_node().slots());
  join.set_identity(NodeIdentity());
  join.set_master_port(static_cast<uint32_t>(master_port_.port));
  link_->Join(*route, std::move(join));
}

void NodeAgent::OnRendezvousMessage(const pb::RendezvousMessage& message) {
  switch (message.message_case()) {
    case pb::RendezvousMessage::kAssignment:
      OnAssignment(message);
      break;
    case pb::RendezvousMessage::kHalt:
      OnHalt(message.epoch(), message.halt());
      break;
    case pb::RendezvousMessage::kInspect:
      OnInspect(message.inspect());
      break;
    case pb::RendezvousMessage::kNotice:
      Notify(message.notice().message());
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
      OnClosed({});
      break;
    case pb::RendezvousMessage::kClosed:
      done_.set_closed(true);
      OnClosed(message.closed());
      break;
    default:
      break;
  }
}

void NodeAgent::OnRendezvousEnd(const std::string& why) {
  if (closed_) return;
  const uint32_t host = prepare_.rendezvous_node();
  pb::Cause cause =
      MakeCause(pb::Cause::NODE_LOST, host, ExitCode::kUnavailable,
                NodeAt(host).name() + " was lost: its rendezvous broke off (" + why + ")");
  cause.set_epoch(epoch_);
  if (MayMove()) return AwaitMove(cause);
  BeginStop(cause);
  OnClosed({});
}

// --- Another rendezvous ---

// A front end is there to name another, and policy allows another epoch.
bool NodeAgent::MayMove() const {
  return prepare_.policy().max_restarts() > 0 && !server_ && !stopping() && !detached_ &&
         !front_end_gone_ && !stream_over_at_;
}

// The front end first makes sure that the lost node has ended its ranks, which takes the node as
// long as its lease if it cannot be told.
void NodeAgent::AwaitMove(const pb::Cause& cause) {
  const pb::Timeouts& timeouts = prepare_.timeouts();
  log_.Write(CauseText(cause) + "; waiting for the front end to name another");
  LeaveRendezvous();
  lost_by_ = cause;
  move_by_ = Clock::now() + kMoveSlack +
             milliseconds(timeouts.lease_ms() + 2 * timeouts.dead_ms() + timeouts.grace_ms() +
                          timeouts.teardown_ms());
  pb::NodeEvent event;
  event.mutable_rendezvous_lost()->set_epoch(epoch_);
  *event.mutable_rendezvous_lost()->mutable_cause() = cause;
  events_.Emit(std::move(event));
  if (phase_ > Phase::kWorking) return;
  phase_ = Phase::kHalting;
  pb::KeeperRequest request;
  request.mutable_stop();
  SendToKeeper(request);
}

void NodeAgent::LeaveRendezvous() {
  std::shared_ptr<RendezvousServer> server;
  {
    const std::lock_guard lock(server_mutex_);
    server.swap(server_);
  }
  server.reset();  // first: our own leaving is not what the others should hear of
  link_->Leave();
}

pb::MoveReply NodeAgent::Move(const pb::MoveRequest& request) {
  pb::MoveReply reply;
  const Result<void> moved = TryMove(request);
  if (!moved.ok()) {
    reply.mutable_failure()->set_exit_code(ToInt(moved.error().code));
    reply.mutable_failure()->set_message(node_name() + ": " + moved.error().message);
    return reply;
  }
  pb::RendezvousOpened& opened = *reply.mutable_opened();
  if (!server_) return reply;
  for (const std::string& endpoint : server_->endpoints())
    opened.add_rendezvous_endpoints(endpoint);
  return reply;
}

Result<void> NodeAgent::TryMove(const pb::MoveRequest& request) {
  if (!move_by_ || stopping())
    return Error{ExitCode::kUnavailable, "it does not wait for another rendezvous"};
  if (request.rendezvous_node() >= static_cast<uint32_t>(prepare_.nodes_size()))
    return Error{ExitCode::kInternal, "the front end named a node that the job does not have"};
  if (request.rendezvous_node() == prepare_.node_index()) DSL_TRY(OpenRendezvous(request));
  move_by_.reset();
  prepare_.set_rendezvous_node(request.rendezvous_node());
  *run_.mutable_rendezvous_endpoints() = request.rendezvous_endpoints();
  log_.Write(NodeAt(request.rendezvous_node()).name() + " decides from now on");
  join_when_empty_ = phase_ == Phase::kHalting;
  if (!join_when_empty_) GoToRendezvous();
  return {};
}

void NodeAgent::OnClosed(const pb::Closed& word) {
  if (std::exchange(closed_, true)) return;
  closed_at_ = Clock::now();
  log_.Write(word.complete() ? "every node is empty" : "not every node said that it is empty");
  done_.set_teardown_complete(word.complete());
  *done_.mutable_cause() = word.cause();
  *done_.mutable_members() = word.members();
  *done_.mutable_victims() = word.victims();
  EndIfAllIsSaid();
  QuitIfIdle();
}

void NodeAgent::SendToRendezvous(pb::AgentMessage message) {
  if (link_ && !closed_) link_->Send(epoch_, std::move(message));
}

// --- Workers ---

// The port that rank 0 will listen on, should it come to run here. A user's choice binds the node
// that hosts the rendezvous, which is where rank 0 starts; several nodes of one machine cannot all
// have it.
Result<void> NodeAgent::ReserveMasterPort() {
  master_port_ = PortReservation();
  const bool hosts_rendezvous = prepare_.node_index() == prepare_.rendezvous_node();
  const int wanted =
      prepare_.local() && !hosts_rendezvous ? 0 : static_cast<int>(prepare_.master_port());
  Result<PortReservation> reservation = ReservePort(wanted);
  if (!reservation.ok() && wanted != 0 && !hosts_rendezvous) reservation = ReservePort(0);
  DSL_TRY_ASSIGN(master_port_, std::move(reservation));
  return {};
}

void NodeAgent::OnAssignment(const pb::RendezvousMessage& message) {
  if (phase_ != Phase::kIdle || message.epoch() <= epoch_) {
    return log_.Write("ranks for epoch " + std::to_string(message.epoch()) +
                      " are refused: this node is in epoch " + std::to_string(epoch_));
  }
  phase_ = Phase::kWorking;
  epoch_ = message.epoch();
  WorkerPlan plan;
  plan.job_id = prepare_.job_id();
  plan.epoch = epoch_;
  plan.assignment = message.assignment();
  plan.slots = own_node().slots();
  plan.device = prepare_.device();
  plan.use_cuda = run_.use_cuda();
  if (prepare_.local()) plan.first_device = message.assignment().first_rank();
  plan.rendezvous_address = link_->address();
  plan.cores = static_cast<int>(std::thread::hardware_concurrency());
  plan.max_restarts = static_cast<int>(prepare_.policy().max_restarts());
  Result<pb::SpawnWorkers> specs = MakeWorkerSpecs(plan, program_, environment_, *folder_);
  if (!specs.ok()) {
    return StopJob(MakeCause(pb::Cause::START_FAILED, prepare_.node_index(), specs.error().code,
                             specs.error().message));
  }
  workers_ = EpochWorkers(epoch_, message.assignment(), *specs);
  log_keeping_->StartAttempt(folder_->AttemptFolder(epoch_));
  for (const EpochWorker& worker : workers_.all())
    log_keeping_->AddRank(worker.rank, worker.folder);
  workers_life_ = {epoch_, program_.cwd, Clock::now(), OutOfMemoryKills()};
  log_.Write("epoch " + std::to_string(epoch_) + ": starting " + std::to_string(plan.slots) +
             " of " + std::to_string(plan.assignment.world_size()) + " ranks from rank " +
             std::to_string(plan.assignment.first_rank()) + ", MASTER_ADDR " +
             plan.assignment.master_addr() + ", MASTER_PORT " +
             std::to_string(plan.assignment.master_port()));
  pb::KeeperRequest request;
  *request.mutable_spawn() = *std::move(specs);
  SendToKeeper(request);
}

// This node's part of the epoch ends, or what it would have been: a spare halts too, so that the
// next epoch finds every node empty.
void NodeAgent::OnHalt(uint64_t epoch, const pb::Halt& halt) {
  if (phase_ > Phase::kWorking || epoch < epoch_) return;
  phase_ = Phase::kHalting;
  epoch_ = epoch;
  log_.Write("epoch " + std::to_string(epoch) + " ends: " + CauseText(halt.cause()) + "; " +
             halt.reason());
  pb::NodeEvent event;
  pb::Restarting& restarting = *event.mutable_restarting();
  restarting.set_epoch(epoch);
  *restarting.mutable_cause() = halt.cause();
  restarting.set_reason(halt.reason());
  restarting.set_delay_ms(halt.delay_ms());
  events_.Emit(std::move(event));
  pb::KeeperRequest request;
  request.mutable_stop();
  SendToKeeper(request);
}

void NodeAgent::OnInspect(const pb::Inspect& inspect) {
  for (const EpochWorker& worker : workers_.all()) {
    if (worker.ended || std::ranges::count(inspect.ranks(), worker.rank) == 0) continue;
    const std::string threads =
        DescribeThreads(ReadThreads(worker.pid), kMaxThreadLines, sysconf(_SC_CLK_TCK));
    Notify(Describe(worker) + " seems to hang: " + inspect.reason() +
           (threads.empty() || threads.front() == '\n' ? "" : "; ") + threads);
  }
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
  const EpochWorker* worker = workers_.Find(spawned.local_rank());
  if (worker == nullptr) return;
  events_.FollowRank(workers_.epoch(), worker->rank, worker->folder);
  if (!workers_.OnSpawned(spawned.local_rank(), spawned.pid())) return;
  pb::NodeEvent event;
  *event.mutable_started() = workers_.Started();
  events_.Emit(std::move(event));
  pb::AgentMessage message;
  message.mutable_ready();
  SendToRendezvous(std::move(message));
}

void NodeAgent::OnSpawnFailed(const pb::SpawnFailed& failed) {
  const EpochWorker* worker = workers_.Find(failed.local_rank());
  if (worker == nullptr) return;
  workers_.OnEnded(failed.local_rank(), /*well=*/false);
  if (phase_ != Phase::kWorking) return;  // refused, because the node is being emptied
  const bool is_program = failed.step() == "execve";
  pb::Cause cause = MakeCause(pb::Cause::START_FAILED, prepare_.node_index(),
                              is_program ? ExitCode::kCannotExecute : ExitCode::kInternal,
                              node_name() + ": cannot start " + program_.argv.front() + " (" +
                                  failed.step() + "): " + strerror(failed.error_number()));
  cause.set_epoch(epoch_);
  cause.set_rank(static_cast<int>(worker->rank));
  cause.set_local_rank(static_cast<int>(worker->local_rank));
  StopJob(cause);
}

void NodeAgent::OnWorkerExited(const pb::WorkerExited& exited) {
  const Clock::time_point noticed = Clock::now();
  const EpochWorker* worker = workers_.Find(exited.local_rank());
  if (worker == nullptr) return;
  log_.Write(Describe(*worker) + (exited.signal() != 0
                                      ? " was ended by " + SignalName(exited.signal())
                                      : " exited with " + std::to_string(exited.exit_code())));
  const bool well = exited.signal() == 0 && exited.exit_code() == 0;
  const bool all_well = workers_.OnEnded(exited.local_rank(), well);
  WorkerEnd end = DescribeWorkerEnd(exited, *worker, workers_life_);
  if (!end.note.empty()) log_.Write(end.note);
  pb::AgentMessage message;
  if (IsFailure(exited)) {
    pb::WorkerFailed& failed = *message.mutable_worker_failed();
    *failed.mutable_cause() = CauseOfFailure(end.event, prepare_.node_index());
    failed.set_age_us(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - noticed).count()));
    failed.set_rtt_us(link_->round_trip_us());
    SendToRendezvous(std::move(message));
  } else if (all_well && phase_ == Phase::kWorking) {
    message.mutable_finished();
    SendToRendezvous(std::move(message));
  }
  pb::NodeEvent event;
  *event.mutable_worker_ended() = std::move(end.event);
  events_.Emit(std::move(event));
}

void NodeAgent::OnWorkerStopped(const pb::WorkerStopped& stopped) {
  const EpochWorker* worker = workers_.Find(stopped.local_rank());
  if (worker == nullptr) return;
  Notify(Describe(*worker) +
         (stopped.signal() == 0
              ? " goes on"
              : " was stopped by " + SignalName(stopped.signal()) +
                    "; the others wait for it until it is continued (kill -CONT)"));
}

void NodeAgent::OnStatus(const pb::StatusBytes& status) {
  const EpochWorker* worker = workers_.Find(status.local_rank());
  if (worker == nullptr) return;
  std::string_view rest = status.data();
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    const std::optional<StatusLine> parsed = StatusLine::Parse(line);
    if (!parsed) continue;
    workers_.OnStatus(status.local_rank(), *parsed, Clock::now());
    events_.EmitStatus(worker->rank, std::string(line));
  }
}

// --- The end ---

void NodeAgent::StopJob(const pb::Cause& cause, bool kill_now) {
  pb::AgentMessage message;
  *message.mutable_stop()->mutable_cause() = cause;
  SendToRendezvous(std::move(message));
  if (!link_ || !link_->joined()) closed_ = true;
  BeginStop(cause, kill_now);
}

void NodeAgent::BeginStop(const pb::Cause& cause, bool kill_now) {
  const bool again = stopping();
  if (again && !kill_now) return;
  if (!again) phase_ = Phase::kStopping;
  log_.Write(std::string(kill_now ? "killing" : "stopping") + ": " + CauseText(cause));
  if (!again) {
    pb::NodeEvent event;
    event.mutable_outcome()->set_epoch(epoch_);
    *event.mutable_outcome()->mutable_cause() = cause;
    outcome_ = cause;
    events_.Emit(std::move(event));
  }
  pb::KeeperRequest request;
  request.mutable_stop()->set_kill_now(kill_now);
  SendToKeeper(request);
}

void NodeAgent::OnAllReaped(const pb::AllReaped& reaped) {
  log_.Write(reaped.left_size() == 0 ? "every process is reaped"
                                     : "processes are left that could not be ended");
  *done_.mutable_left() = reaped.left();
  if (phase_ == Phase::kHalting) return Halted();
  if (phase_ == Phase::kStopping) TornDown();
}

void NodeAgent::Halted() {
  phase_ = Phase::kIdle;
  events_.EndEpoch();
  if (const Result<void> port = ReserveMasterPort(); !port.ok()) {
    return StopJob(MakeCause(pb::Cause::START_FAILED, prepare_.node_index(), port.error().code,
                             node_name() + ": " + port.error().message));
  }
  if ((move_by_ || join_when_empty_) && done_.left_size() > 0) {
    closed_ = true;
    return BeginStop(MakeCause(pb::Cause::INTERNAL, prepare_.node_index(), ExitCode::kTimedOut,
                               node_name() + ": processes are left that could not be ended"));
  }
  if (std::exchange(join_when_empty_, false)) return GoToRendezvous();
  pb::AgentMessage message;
  pb::Halted& halted = *message.mutable_halted();
  *halted.mutable_left() = done_.left();
  halted.set_master_port(static_cast<uint32_t>(master_port_.port));
  SendToRendezvous(std::move(message));
}

void NodeAgent::TornDown() {
  phase_ = Phase::kEmpty;
  ended_at_ = std::chrono::system_clock::now();
  // Without a front end the job's last word is this node's to keep, so it waits for the others as
  // long as they may take.
  const pb::Timeouts& timeouts = prepare_.timeouts();
  quit_at_ =
      Clock::now() +
      (detached_ ? milliseconds(timeouts.grace_ms() + timeouts.teardown_ms() + timeouts.dead_ms())
                 : kQuitWait);
  pb::AgentMessage message;
  *message.mutable_torn_down()->mutable_left() = done_.left();
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
  // Whoever decides is no longer here: the other nodes need another, if they may have one.
  if (server_ && prepare_.policy().max_restarts() > 0 && prepare_.nodes_size() > 1)
    LeaveRendezvous();
  StopJob(MakeCause(pb::Cause::NODE_LOST, prepare_.node_index(), ExitCode::kUnavailable,
                    node_name() + " was lost: its keeper process was killed"));
  const Orphans orphans = {.job_id = prepare_.job_id(),
                           .groups = workers_.RunningPids(),
                           .session = getsid(0),
                           .cgroup = workers_cgroup_};
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
  if (prepared_) {
    const bool told = closed_ || (quit_at_ && Clock::now() >= *quit_at_);
    if (phase_ != Phase::kEmpty || !told) return;
    // A front end that detaches does not listen, even when the end was on its way to it.
    if (detached_ || !events_.ended()) WriteResult();
    if (!MayQuit()) return;
    attach_socket_.reset();
  }
  loop_.stop();
}

bool NodeAgent::MayQuit() const {
  // The answer to Detach is on its way.
  if (detached_ && Clock::now() - detached_at_ < kClosedTravels) return false;
  if (!closed_at_ || !detached_) return true;
  const Clock::duration passed = Clock::now() - *closed_at_;
  if (server_ && passed < kClosedTravels) return false;
  return !events_.HasViewers() || passed >= kViewersWait;
}

void NodeAgent::WriteResult() {
  if (std::exchange(result_written_, true)) return;
  events_.End(done_);
  pb::JobResult result = MakeJobResult(prepare_.job_id(), outcome_, done_);
  result.set_started_unix_ms(UnixMs(started_at_));
  result.set_ended_unix_ms(UnixMs(ended_at_.value_or(std::chrono::system_clock::now())));
  const Result<void> written = WriteJobResult(folder_->path(), result);
  log_.Write(written.ok() ? "the result is exit code " + std::to_string(result.exit_code())
                          : written.error().message);
}

void NodeAgent::EndIfAllIsSaid() {
  if (phase_ == Phase::kEmpty && closed_) events_.End(done_);
}

void NodeAgent::OnStreamOver() {
  if (detached_) return;
  if (!stream_over_at_) stream_over_at_ = Clock::now();
  events_.Detach();
}

void NodeAgent::Notify(std::string text) {
  log_.Write(text);
  pb::NodeEvent event;
  event.mutable_notice()->set_message(std::move(text));
  events_.Emit(std::move(event));
}

std::string NodeAgent::Describe(const EpochWorker& worker) const {
  return "rank " + std::to_string(worker.rank) + " (" + node_name() + ", pid " +
         std::to_string(worker.pid) + ")";
}

// --- Time ---

void NodeAgent::Beat(bool loop_lives) {
  std::shared_ptr<RendezvousServer> server;
  {
    const std::lock_guard lock(server_mutex_);
    server = server_;
  }
  // Time passes for the rendezvous even if this node's own part is dead: it is to find that out.
  if (server) server->Tick();
  if (!loop_lives) return;
  // The keeper judges by the same beats as the rendezvous, else it would kill an agent that only
  // waits for its disk.
  pb::KeeperRequest alive;
  alive.mutable_alive();
  keeper_.Send(alive);
  link_->Beat();
}

void NodeAgent::Tick() {
  milliseconds interval = kDefaultTick;
  if (prepared_) {
    interval = milliseconds(prepare_.timeouts().heartbeat_ms()) / 2;
    heart_->LoopTurned();
    link_->SetBeat(epoch_, workers_.Progress(Clock::now()));
    events_.EmitAlive();
    for (std::string& notice : log_keeping_->Turn(UnixMs(std::chrono::system_clock::now())))
      Notify(std::move(notice));
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
  if (tick_was_late) {
    link_->Forgive();
    lease_renewed_ = now;
  }
  if (link_->joined() && !closed_ &&
      link_->IsSilentFor(milliseconds(prepare_.timeouts().dead_ms())))
    OnRendezvousEnd("it was silent");
  if (move_by_ && now >= *move_by_) {
    move_by_.reset();
    BeginStop(lost_by_);
    OnClosed({});
  }
  // An empty node has nothing to lose, and does not wait for as long.
  const pb::Timeouts& timeouts = prepare_.timeouts();
  const milliseconds lease(phase_ == Phase::kEmpty
                               ? std::min(timeouts.lease_ms(), timeouts.dead_ms())
                               : timeouts.lease_ms());
  if (!detached_ && lease.count() > 0 && now - lease_renewed_ >= lease) OnFrontEndGone();
  const milliseconds patience = events_.ended() ? kGoodbyeWithin : kKeeperTellsWithin;
  if (stream_over_at_ && now - *stream_over_at_ >= patience) OnFrontEndGone();
}

void NodeAgent::SendToKeeper(const pb::KeeperRequest& request) {
  if (!keeper_gone_) keeper_.Send(request);
}

}  // namespace dslaunch
