#include "agent/node/node_agent.h"

#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "agent/host/gpus.h"
#include "agent/host/logout.h"
#include "agent/host/node_identity.h"
#include "agent/host/shell_environment.h"
#include "net/addresses.h"
#include "proto/contract/job_id.h"

namespace dslaunch {
namespace {

constexpr milliseconds kDefaultTick(500);
constexpr milliseconds kKeeperTellsWithin(1000);
constexpr milliseconds kGoodbyeWithin(30'000);  // of a front end that heard that all is done
constexpr int kLoopPatience = 5;                // times dead_ms; a disk may take that long
constexpr milliseconds kUnpreparedLease(10'000);
constexpr milliseconds kStall(500);  // a timer this late means that this process stood still

}  // namespace

NodeAgent::NodeAgent(asio::io_context& loop, int control_fd, std::function<void(UniqueFd)> serve)
    : loop_(loop),
      tick_timer_(loop),
      keeper_(
          loop, UniqueFd(control_fd), [this](std::string_view bytes) { OnKeeperMessage(bytes); },
          [this](const std::string&) { OnKeeperGone(); }),
      lease_({.length = kUnpreparedLease, .look_every = kDefaultTick, .prompt = kUnpreparedLease},
             BootClock::now()),
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

pb::RenewReply NodeAgent::Renew(const pb::RenewRequest& request) {
  pb::RenewReply reply;
  reply.set_clock_us(lease_.Renew(
      request.has_heard_us() ? std::optional(request.heard_us()) : std::nullopt, BootClock::now()));
  return reply;
}

bool NodeAgent::Own(const pb::OwnPart& part) {
  if (own_ || prepared_) return false;
  own_ = part;
  return true;
}

Result<pb::PrepareRequest> NodeAgent::WithOwnPart(const pb::PrepareRequest& request) const {
  pb::PrepareRequest own = request;
  if (!own_) return own;
  // Both become parts of paths.
  const bool bad_name = std::ranges::any_of(request.nodes(), [](const pb::Node& node) {
    return node.name().find_first_not_of('.') == std::string::npos;
  });
  const bool has_node = std::cmp_less(request.node_index(), request.nodes_size());
  const bool bad_slots =
      has_node && request.nodes(static_cast<int>(request.node_index())).slots() != own_->slots();
  if (bad_name || bad_slots || !IsJobId(request.job_id()))
    return Error{ExitCode::kNoPermission, "the front end sent a job that is not this command's"};
  *own.mutable_program() = own_->program();
  own.set_log_dir(own_->log_dir());
  *own.mutable_ranks() = own_->ranks();
  own.clear_devices();
  own.set_save_pid(own_->save_pid());
  own.set_detachable(false);
  return own;
}

Result<void> NodeAgent::CheckNetworkInterface() const {
  const std::string& name = prepare_.network_interface();
  if (name.empty() || (prepare_.local() && if_nametoindex(name.c_str()) != 0)) return {};
  std::string others;
  for (const Interface& one : Interfaces()) {
    const bool serves = one.up && !one.addresses.empty();
    if (serves && one.name == name) return {};
    if (serves) others += (others.empty() ? "" : ", ") + one.name + " (" + one.addresses[0] + ")";
  }
  return Error{ExitCode::kUnavailable, "--network_interface " + name +
                                           ": no such interface is up and has an address; " +
                                           (others.empty() ? "none is" : "there is " + others)};
}

Result<pb::NodeFacts> NodeAgent::TryPrepare(const pb::PrepareRequest& sent) {
  if (prepared_) return Error{ExitCode::kInternal, "the agent was prepared twice"};
  DSL_TRY_ASSIGN(const pb::PrepareRequest request, WithOwnPart(sent));
  const auto nodes = static_cast<uint32_t>(request.nodes_size());
  if (request.node_index() >= nodes || request.rendezvous_node() >= nodes ||
      request.program().argv_size() == 0) {
    return Error{ExitCode::kInternal, "the front end sent an incomplete job"};
  }
  prepare_ = request;
  DSL_TRY(PrepareProgram());
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
  // Devices that were chosen are counted among all of the node.
  const char* const visible =
      request.devices().empty() ? FindVariable(environment_, "CUDA_VISIBLE_DEVICES") : nullptr;
  facts.set_gpus(static_cast<uint32_t>(CountVisibleGpus(visible)));
  if (request.detachable()) {
    DSL_TRY_ASSIGN(
        attach_socket_,
        AttachSocket::Listen(loop_, SocketFolders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid()),
                             SocketName(request.job_id(), request.node_index()), serve_));
    const std::string warning = LogoutWarning(ReadLogoutFacts(), node_name());
    if (!warning.empty()) Notify(warning);
  }
  DSL_TRY(CheckNetworkInterface());
  DSL_TRY(ReserveMasterPort());
  if (request.node_index() == request.rendezvous_node()) {
    pb::MoveRequest nothing_before;
    *nothing_before.mutable_absent_nodes() = request.absent_nodes();
    DSL_TRY(OpenRendezvous(nothing_before));
    for (const std::string& endpoint : server_->endpoints())
      facts.add_rendezvous_endpoints(endpoint);
  }
  DSL_TRY(SavePid());
  prepared_ = true;
  SetLease(milliseconds(request.timeouts().lease_ms()));
  link_ = std::make_unique<RendezvousLink>(
      loop_, request.job_id(), request.node_index(),
      [this](const pb::RendezvousMessage& message) { OnRendezvousMessage(message); },
      [this](const std::string& why) { OnRendezvousEnd(why); });
  heart_ = std::make_unique<Heartbeat>(milliseconds(request.timeouts().heartbeat_ms()) / 2,
                                       kLoopPatience * milliseconds(request.timeouts().dead_ms()),
                                       [this](bool loop_lives) { Beat(loop_lives); });
  return facts;
}

Result<void> NodeAgent::PrepareProgram() {
  const pb::Program& program = prepare_.program();
  environment_ = NodeEnvironment();
  if (!program.venv_script().empty()) {
    DSL_TRY(CheckWorkingDirectory(program.cwd(), node_name()));
    DSL_TRY_ASSIGN(environment_,
                   SourceScript(program.venv_script(), program.cwd(), environment_, node_name()));
  }
  environment_ = MergeEnvironment(std::move(environment_), program.env());
  environment_ = MergeEnvironment(std::move(environment_), program.chosen_env());
  DSL_TRY_ASSIGN(program_, ResolveProgram(program, environment_, node_name()));
  // Before anything runs; where the GPUs are does not matter to it.
  if (prepare_.ranks().bind() != pb::RankOptions::CORES) return {};
  uint32_t world_size = 0;
  for (const pb::Node& node : prepare_.nodes()) world_size += node.spare() ? 0 : node.slots();
  const Result<std::vector<RankBinding>> bindings =
      BindRanks(0, std::max(world_size, own_node().slots()), {});
  return bindings.ok() ? Result<void>() : bindings.error();
}

// With the keeper's pid: signalled, it empties this node, and the job ends. Nodes that are one
// machine have one file.
Result<void> NodeAgent::SavePid() {
  if (prepare_.save_pid() == 0 || (prepare_.local() && prepare_.node_index() > 0)) return {};
  Result<PidFile> file = PidFile::Create(PidFile::PathFor(prepare_.save_pid()), ::getppid());
  if (!file.ok()) return Error{file.error().code, node_name() + ": " + file.error().message};
  Notify(node_name() + ": " + file->path() + " has the pid to signal there, until the job's end");
  pid_file_.emplace(*std::move(file));
  return {};
}

void NodeAgent::Run(const pb::RunRequest& request, std::shared_ptr<EventSink> sink) {
  run_ = request;
  events_.Attach(RankSelection(request.shown()), std::move(sink));
  if (request.filtered().stdout_texts_size() + request.filtered().stderr_texts_size() > 0)
    filtered_log_.emplace(loop_, node_name(), request.filtered());
  if (!stopping()) GoToRendezvous();  // else before it ran
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
    SetLease(milliseconds(0));
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
  *status.mutable_members() = workers_.assignment().members();
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
  if (const auto left = lease_.Left(BootClock::now()))
    alive.mutable_alive()->set_lease_left_ms(static_cast<uint32_t>(left->count()));
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
    for (std::string& notice : log_keeping_->Turn(UnixMs())) Notify(std::move(notice));
    CheckSilence(Clock::now() > tick_timer_.expiry() + kStall);
  } else {
    CheckLease();
  }
  QuitIfIdle();
  tick_timer_.expires_after(interval);
  tick_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) Tick();
  });
}

void NodeAgent::CheckSilence(bool tick_was_late) {
  const Clock::time_point now = Clock::now();
  if (tick_was_late) link_->Forgive();
  if (link_->joined() && !closed_ &&
      link_->IsSilentFor(milliseconds(prepare_.timeouts().dead_ms())))
    OnRendezvousEnd("it was silent");
  if (move_by_ && now >= *move_by_) {
    move_by_.reset();
    BeginStop(lost_by_);
    OnClosed({});
  }
  CheckLease();
  const milliseconds patience = events_.ended() ? kGoodbyeWithin : kKeeperTellsWithin;
  if (stream_over_at_ && now - *stream_over_at_ >= patience) OnFrontEndGone();
}

void NodeAgent::CheckLease() {
  if (lease_.Left(BootClock::now()) == milliseconds(0)) OnFrontEndGone();
}

void NodeAgent::SetLease(milliseconds length) {
  const pb::Timeouts& timeouts = prepare_.timeouts();
  lease_.SetTerms({.length = length,
                   .look_every = milliseconds(timeouts.heartbeat_ms()) / 2,
                   .prompt = milliseconds(timeouts.dead_ms())});
}

void NodeAgent::SendToKeeper(const pb::KeeperRequest& request) {
  if (!keeper_gone_) keeper_.Send(request);
}

}  // namespace dslaunch
