#include "agent/node/node_agent.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "agent/host/logout.h"
#include "agent/host/nvidia_smi.h"
#include "agent/node/kept_result.h"
#include "agent/supervisor/orphan_sweep.h"
#include "rendezvous/majority.h"

namespace dslaunch {
namespace {

// Writes the supervisor's pid to a file if the job requests that. A signal to that pid ends all
// ranks of this node, and thus the job. Nodes on one machine share one file.
Result<void> SavePid(const NodeJob& job, NodeOutput& output, std::optional<PidFile>& pid_file) {
  const uint32_t save_pid = job.spec().ranks().save_pid();
  if (save_pid == 0 || (job.spec().local() && job.node_index() > 0)) return {};
  Result<PidFile> file = PidFile::Create(PidFile::PathFor(save_pid), ::getppid());
  if (!file.ok()) return Error{file.error().code, job.node_name() + ": " + file.error().message};
  output.Notify(job.node_name() + ": " + file->path() +
                " has the pid to signal there, until the job's end");
  pid_file.emplace(*std::move(file));
  return {};
}

}  // namespace

NodeAgent::NodeAgent(asio::io_context& loop, int control_fd, int sockets_fd,
                     std::string_view pmix_server, std::function<void(UniqueFd)> serve)
    : loop_(loop),
      tick_timer_(loop),
      output_(loop, [this](AgentActions actions) { CarryOut(std::move(actions)); }),
      supervisor_(loop, control_fd, output_),
      sampler_(
          loop, [this]() -> const AttemptWorkers& { return core().workers().ranks(); },
          [this](const pb::NodeSample& sample) { output_.events().EmitSample(sample); },
          FindNvidiaSmi),
      ranks_(loop, output_, rendezvous_, supervisor_, sampler_, sockets_fd, pmix_server),
      rendezvous_(loop, output_),
      serve_(std::move(serve)) {
  Tick();
}

void NodeAgent::CarryOut(AgentActions actions) {
  const auto carry_out = [this](auto& action) {
    if constexpr (requires { output_.Do(action); })
      output_.Do(action);
    else if constexpr (requires { ranks_.Do(action); })
      ranks_.Do(action);
    else if constexpr (requires { supervisor_.Do(action); })
      supervisor_.Do(action);
    else if constexpr (requires { rendezvous_.Do(action); })
      rendezvous_.Do(action);
    else
      Do(action);
  };
  if (!actions_.CarryOut(std::move(actions), carry_out)) return;
  sampler_.Want(output_.events().WantedSamples());
  ranks_.CheckMpi();
  if (core().workers().phase() == WorkersCore::Phase::kTornDown && !ended_at_)
    ended_at_ = std::chrono::system_clock::now();
}

// --- Calls of the front end ---

pb::PrepareReply NodeAgent::Prepare(const pb::PrepareRequest& request) {
  pb::PrepareReply reply;
  Result<pb::PreparedNode> info = TryPrepare(request);
  if (info.ok()) {
    *reply.mutable_info() = *std::move(info);
  } else {
    reply.mutable_failure()->set_exit_code(ToInt(info.error().code));
    reply.mutable_failure()->set_message(info.error().message);
  }
  return reply;
}

Result<pb::PreparedNode> NodeAgent::TryPrepare(const pb::PrepareRequest& sent) {
  DSL_TRY(core().job().OnPrepare(sent));
  pb::PreparedNode info;
  DSL_TRY(ranks_.OpenFolder());
  DSL_TRY(ranks_.Describe(info));
  DSL_TRY(OpenAttachSocket());
  DSL_TRY(ranks_.OpenPorts());
  if (ranks_.links() != nullptr) rendezvous_.OpenVotes(*ranks_.links());
  const pb::PrepareRequest& request = core().job().request();
  if (request.node_index() == request.rendezvous_node()) {
    pb::FailoverRequest nothing_before;
    *nothing_before.mutable_absent_nodes() = request.absent_nodes();
    DSL_TRY(rendezvous_.Open(nothing_before));
    for (const std::string& endpoint : rendezvous_.endpoints())
      info.add_rendezvous_endpoints(endpoint);
  }
  DSL_TRY(SavePid(core().job(), output_, pid_file_));
  rendezvous_.OpenLink();
  output_.Feed([this](Clock::time_point) { core().OnPrepared(); });
  return info;
}

Result<void> NodeAgent::OpenAttachSocket() {
  const pb::PrepareRequest& request = core().job().request();
  Result<std::unique_ptr<AttachSocket>> socket =
      AttachSocket::Listen(loop_, SocketFolders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid()),
                           SocketName(request.job().job_id(), request.node_index()), serve_);
  if (socket.ok()) attach_socket_ = *std::move(socket);
  if (!request.job().detachable()) {
    // Without --detach, only `dslaunch stacks` needs the socket, so the job runs even if there is
    // none.
    if (!socket.ok()) output_.Log("no socket for dslaunch stacks: " + socket.error().message);
    return {};
  }
  if (!socket.ok()) return socket.error();
  const std::string warning = LogoutWarning(ReadLogoutInfo(), core().job().node_name());
  if (!warning.empty()) output_.Notify(warning);
  return {};
}

void NodeAgent::Run(const pb::RunRequest& request, std::shared_ptr<EventSink> sink) {
  ranks_.OnRun(request);
  output_.events().Attach(RankSelection(request.shown()), std::move(sink), request.samples());
  const pb::FilteredLogs& filtered = core().job().spec().ranks().filtered();
  if (filtered.stdout_texts_size() + filtered.stderr_texts_size() > 0)
    output_.OpenFilteredLog(filtered);
  output_.Feed([&](Clock::time_point now) {
    core().membership().OnRun(
        {request.rendezvous_endpoints().begin(), request.rendezvous_endpoints().end()}, now);
  });
}

pb::RenewReply NodeAgent::Renew(const pb::RenewRequest& request) {
  return core().front_end().Renew(request, BootClock::now());
}

pb::FailoverReply NodeAgent::Failover(const pb::FailoverRequest& request) {
  pb::FailoverReply reply;
  const Result<void> failed_over = TryFailover(request);
  if (!failed_over.ok()) {
    reply.mutable_failure()->set_exit_code(ToInt(failed_over.error().code));
    reply.mutable_failure()->set_message(core().job().node_name() + ": " +
                                         failed_over.error().message);
    return reply;
  }
  pb::RendezvousOpened& opened = *reply.mutable_opened();
  for (const std::string& endpoint : rendezvous_.endpoints())
    opened.add_rendezvous_endpoints(endpoint);
  return reply;
}

Result<void> NodeAgent::TryFailover(const pb::FailoverRequest& request) {
  DSL_TRY(core().membership().CheckFailover(request));
  if (request.rendezvous_node() == core().job().node_index()) DSL_TRY(rendezvous_.Open(request));
  output_.Feed([&](Clock::time_point now) { core().membership().OnFailover(request, now); });
  return {};
}

void NodeAgent::Stop(const pb::StopRequest& request) {
  output_.Feed([&](Clock::time_point) { core().OnStop(request.cause(), request.kill_now()); });
}

void NodeAgent::Signal(int signal_number) {
  output_.Feed([&](Clock::time_point) { core().workers().OnSignal(signal_number); });
}

Result<std::string> NodeAgent::Detach() {
  if (!attach_socket_ || !core().job().request().job().detachable()) {
    return Error{ExitCode::kUsage,
                 core().job().node_name() +
                     ": this job was not started with --detach, so it cannot be detached"};
  }
  const std::string path = attach_socket_->path();
  output_.Feed([&](Clock::time_point now) { core().OnDetach(path, now, BootClock::now()); });
  return path;
}

void NodeAgent::Attach(const pb::AttachRequest& request, std::shared_ptr<EventSink> sink) {
  output_.events().AddViewer(request, std::move(sink));
  sampler_.Want(output_.events().WantedSamples());
  sampler_.Hasten();
}

void NodeAgent::OnViewerOver(const EventSink* sink) {
  output_.events().RemoveViewer(sink);
  output_.Feed([this](Clock::time_point now) { core().teardown().QuitIfIdle(now); });
}

void NodeAgent::OnStreamOver() {
  output_.Feed([this](Clock::time_point now) { core().front_end().OnStreamOver(now); });
}

pb::JobStatus NodeAgent::Status() {
  using Phase = WorkersCore::Phase;
  const pb::PrepareRequest& prepare = core().job().request();
  const pb::Assignment& assignment = core().workers().ranks().assignment();
  pb::JobStatus status;
  status.set_job_id(prepare.job().job_id());
  status.set_attempt(core().workers().attempt());
  status.set_restart_count(assignment.restart_count());
  status.set_phase(core().workers().phase() == Phase::kTornDown   ? pb::JobStatus::ENDED
                   : core().workers().phase() == Phase::kStopping ? pb::JobStatus::STOPPING
                   : output_.events().running()                   ? pb::JobStatus::RUNNING
                   : core().workers().attempt() > 1 || core().majority().is_electing() ||
                           core().workers().phase() == Phase::kDraining
                       ? pb::JobStatus::RESTARTING
                       : pb::JobStatus::JOINING);
  *status.mutable_cause() = core().teardown().outcome();
  *status.mutable_members() = assignment.members();
  status.set_first_rank(assignment.first_rank());
  status.set_world_size(assignment.world_size());
  for (const AttemptWorker& worker : core().workers().ranks().all())
    status.add_pids(worker.ended ? 0 : worker.pid);
  status.set_started_unix_ms(UnixMs(started_at_));
  if (ended_at_) status.set_ended_unix_ms(UnixMs(*ended_at_));
  status.set_job_dir(ranks_.folder());
  status.set_description(prepare.job().ranks().description());
  for (const auto& [rank, line] : output_.events().newest_status()) {
    pb::WorkerStatus& newest = *status.add_status();
    newest.set_rank(rank);
    newest.set_line(line);
  }
  *status.mutable_goodput() = core().goodput().Report(Clock::now());
  if (const auto copy = core().goodput().NewestCopy()) {
    status.set_copied_step(static_cast<uint64_t>(copy->step));
    const auto age = std::chrono::duration_cast<milliseconds>(Clock::now() - copy->at);
    status.set_copied_unix_ms(UnixMs() - age.count());
  }
  status.set_stop_within_ms(static_cast<uint32_t>(EmptyingLimit(prepare.job().timeouts()).count()));
  return status;
}

// --- Actions for the supervisor ---

void NodeAgent::Do(agent_action::SweepOrphans& action) {
  const pb::PrepareRequest& prepare = core().job().request();
  const Orphans orphans = {.job_id = prepare.job().job_id(),
                           .groups = std::move(action.groups),
                           .session = getsid(0),
                           .cgroup = std::move(action.cgroup)};
  GracefulKillOptions graceful_kill;
  graceful_kill.grace = milliseconds(prepare.job().timeouts().grace_ms());
  graceful_kill.teardown = milliseconds(prepare.job().timeouts().teardown_ms());
  const LeftProcesses left = ::dslaunch::SweepOrphans(orphans, graceful_kill);
  output_.Feed([&](Clock::time_point now) { core().OnAllReaped(left, now); });
}

void NodeAgent::Do(agent_action::JoinRendezvous& action) {
  action.join.set_master_port(static_cast<uint32_t>(ranks_.master_port()));
  if (const RankLinkHub* links = ranks_.links())
    action.join.set_link_port(static_cast<uint32_t>(links->port()));
  rendezvous_.Join(action);
}

// --- Heartbeats and ticks ---

void NodeAgent::Do(agent_action::StartHeart& action) {
  heart_ = std::make_unique<Heartbeat>(
      action.interval, action.patience,
      [this, ticks_per_beat = action.ticks_per_beat, ticks = uint32_t{0}](bool loop_lives) mutable {
        Beat(loop_lives, ticks++ % ticks_per_beat == 0);
      });
}

void NodeAgent::Beat(bool loop_lives, bool tells_rendezvous) {
  // The rendezvous has to detect that this node's own loop is dead, so the rendezvous advances even
  // then.
  rendezvous_.TickServer();
  if (!loop_lives) return;
  // If the supervisor got other heartbeats than the rendezvous, it would kill an agent that only
  // waits for its disk, so it gets the same.
  pb::SupervisorRequest alive;
  *alive.mutable_alive() = core().Alive(BootClock::now());
  supervisor_.Send(alive);
  if (tells_rendezvous) rendezvous_.Beat();
}

void NodeAgent::Tick() {
  if (core().job().prepared()) {
    heart_->LoopTurned();
    output_.events().EmitAlive(
        /*to_front_end=*/core().front_end().IsUnasked(BootClock::now()));
    std::vector<pb::Stillness> stillness = ranks_.Stillness();
    core().goodput().OnStillness(stillness, Clock::now());
    rendezvous_.Turn(std::move(stillness));
    ranks_.CheckLogs();
  }
  const Clock::duration late = Clock::now() - tick_timer_.expiry();
  output_.Feed([&](Clock::time_point now) { core().OnTick(now, BootClock::now(), late); });
  tick_timer_.expires_after(core().tick_interval());
  tick_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) Tick();
  });
}

// --- End of the job ---

void NodeAgent::Do(agent_action::WriteResult& action) {
  pb::JobResult& result = action.result;
  result.set_started_unix_ms(UnixMs(started_at_));
  result.set_ended_unix_ms(UnixMs(ended_at_.value_or(std::chrono::system_clock::now())));
  output_.AddAttempts(*result.mutable_done());
  const pb::PrepareRequest& prepare = core().job().request();
  const Result<std::string> kept =
      KeepResult(result, ranks_.folder(),
                 OwnSecondResultFolders(prepare.job().job_id(), prepare.node_index()));
  output_.log().Write(kept.ok() ? LogLevel::kInfo : LogLevel::kError,
                      kept.ok() ? "the result is exit code " + std::to_string(result.exit_code()) +
                                      ", kept in " + *kept
                                : kept.error().message);
}

void NodeAgent::Do(agent_action::Quit&) {
  sampler_.Want({});
  ranks_.EndMpi();
  ranks_.CloseStdin();
  attach_socket_.reset();
  rendezvous_.CloseVotes();
  ranks_.CloseLinks();
  pid_file_.reset();
  loop_.stop();
}

}  // namespace dslaunch
