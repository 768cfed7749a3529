#include "agent/node/node_agent.h"

#include <sys/socket.h>
#include <unistd.h>

#include <asio/post.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/host/gpus.h"
#include "agent/host/launcher_use.h"
#include "agent/host/logout.h"
#include "agent/host/open_files.h"
#include "agent/host/port_listeners.h"
#include "agent/logs/log_space.h"
#include "agent/mpi/mpi_environment.h"
#include "agent/node/rendezvous_options.h"
#include "base/errno_text.h"
#include "base/os/pass_fd.h"
#include "base/os/process_tree.h"
#include "proto/contract/old_jobs.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
namespace {

// How often it is looked who listens at MASTER_PORT. Ranks that find another user's store there
// take longer than this to do anything with it.
constexpr milliseconds kMasterPortWatch(100);

// What the rendezvous of this job may say to this node.
PeerLimits LimitsOf(const AgentCore& core) {
  PeerLimits limits;
  limits.nodes = core.nodes().size();
  limits.ranks = core.nodes().num_slots();
  limits.slots = core.own_node().slots();
  return limits;
}

// Old folders of jobs whose front end is another machine: where it is this one, it removes them.
// On a thread of its own, since files may be many; the end of this process ends it.
void RemoveOldJobsBeside(const std::filesystem::path& node_folder) {
  const std::filesystem::path jobs =
      node_folder.parent_path().parent_path().parent_path();  // of JOBS/JOB/nodes/NODE
  std::thread([jobs] {
    RemoveOldJobs(jobs.string(), std::time(nullptr), SIZE_MAX, [&](const std::string& job_id) {
      std::error_code error;
      return !std::filesystem::exists(jobs / job_id / "job.json", error) && !error &&
             ProcessesWithVariable(kJobIdVariable, job_id).empty();
    });
  }).detach();
}

}  // namespace

NodeAgent::NodeAgent(asio::io_context& loop, int control_fd, int sockets_fd,
                     std::string_view pmix_server, std::function<void(UniqueFd)> serve)
    : loop_(loop),
      poster_(std::make_shared<LoopPoster>(loop)),
      tick_timer_(loop),
      master_port_timer_(loop),
      core_(AgentCoreOptions(), BootClock::now()),
      supervisor_(
          loop, UniqueFd(control_fd),
          [this](std::string_view bytes) { OnSupervisorMessage(bytes); },
          [this](const std::string&) { OnSupervisorGone(); }),
      sockets_(sockets_fd),
      pmix_server_(pmix_server),
      events_(loop),
      serve_(std::move(serve)) {
  Tick();
}

NodeAgent::~NodeAgent() {
  if (stdin_) stdin_->Close();
  poster_->Close();
}

// --- The front end's calls ---

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
  DSL_TRY(core_.OnPrepare(sent));
  const pb::PrepareRequest& request = core_.prepare();
  const pb::JobSpec& job = request.job();
  const std::string& node_name = core_.node_name();
  DSL_TRY_ASSIGN(program_, NodeProgram::Resolve(request, core_.nodes()));
  DSL_TRY_ASSIGN(folder_, JobFolder::Create(job.ranks().log_dir(), job.job_id(), node_name,
                                            program_->environment()));
  DSL_TRY(CheckLogSpace(node_name, folder_->path(), ReadLogSpace(folder_->path())));
  DSL_TRY(log_.Open(folder_->path() + "/agent.log"));
  if (!program_->notice().empty()) Notify(program_->notice());
  if (job.ranks().log_dir().empty()) RemoveOldJobsBeside(folder_->path());
  log_keeping_.emplace(node_name, job.log_max_bytes());
  log_.Write(LogLevel::kInfo, "job " + job.job_id() + ", node " + node_name + ": prepared to run " +
                                  program_->program().argv.front() + " in " +
                                  program_->program().cwd);

  pb::PreparedNode info;
  info.set_job_dir(folder_->path());
  // Devices that were chosen are counted among all of the node.
  const char* const visible = request.devices().empty()
                                  ? FindVariable(program_->environment(), "CUDA_VISIBLE_DEVICES")
                                  : nullptr;
  const Result<int> gpus = CountVisibleGpus(visible, job.ranks().options().virtual_local_rank());
  if (!gpus.ok() && job.device() != pb::DEVICE_CPU)
    return Error{gpus.error().code, node_name + ": " + gpus.error().message};
  info.set_gpus(static_cast<uint32_t>(gpus.ok() ? *gpus : 0));
  if (request.node_index() == 0 && !job.ranks().program().nested()) {
    const ResolvedProgram& program = program_->program();
    const std::string warning = ShellLauncherWarning(program.argv, program.cwd);
    if (!warning.empty()) Notify(warning);
  }
  info.set_no_pmix(WhyNoPmix());
  if (job.detachable()) {
    DSL_TRY_ASSIGN(
        attach_socket_,
        AttachSocket::Listen(loop_, SocketFolders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid()),
                             SocketName(job.job_id(), request.node_index()), serve_));
    const std::string warning = LogoutWarning(ReadLogoutInfo(), node_name);
    if (!warning.empty()) Notify(warning);
  }
  DSL_TRY(CheckNetworkInterface(request));
  DSL_TRY(ReserveMasterPort());
  OpenRankLinks();
  if (request.node_index() == request.rendezvous_node()) {
    pb::FailoverRequest nothing_before;
    *nothing_before.mutable_absent_nodes() = request.absent_nodes();
    DSL_TRY(OpenRendezvous(nothing_before));
    for (const std::string& endpoint : server_->endpoints())
      info.add_rendezvous_endpoints(endpoint);
  }
  DSL_TRY(SavePid());
  link_ = std::make_unique<RendezvousLink>(
      loop_, job.job_id(), request.node_index(), LimitsOf(core_),
      [this](const pb::RendezvousMessage& message) {
        Feed([&](Clock::time_point now) {
          return core_.OnRendezvousMessage(message, now, BootClock::now());
        });
      },
      [this](const std::string& why) {
        Feed([&](Clock::time_point now) { return core_.OnRendezvousEnd(why, now); });
      },
      [this](BootClock::time_point sent, std::chrono::microseconds age) {
        core_.OnMajority(sent, age, BootClock::now());
      });
  Feed([this](Clock::time_point) { return core_.OnPrepared(); });
  return info;
}

// With the supervisor's pid: signalled, it empties this node, and the job ends. Nodes that are one
// machine have one file.
Result<void> NodeAgent::SavePid() {
  const pb::JobSpec& job = core_.prepare().job();
  const uint32_t save_pid = job.ranks().save_pid();
  if (save_pid == 0 || (job.local() && core_.prepare().node_index() > 0)) return {};
  Result<PidFile> file = PidFile::Create(PidFile::PathFor(save_pid), ::getppid());
  if (!file.ok()) return Error{file.error().code, core_.node_name() + ": " + file.error().message};
  Notify(core_.node_name() + ": " + file->path() +
         " has the pid to signal there, until the job's end");
  pid_file_.emplace(*std::move(file));
  return {};
}

// The port that rank 0 will listen on, should it come to run here. A user's choice binds the node
// that hosts the rendezvous, which is where rank 0 starts; several nodes of one machine cannot all
// have it.
Result<void> NodeAgent::ReserveMasterPort() {
  master_port_ = PortReservation();
  const pb::PrepareRequest& prepare = core_.prepare();
  const bool hosts_rendezvous = prepare.node_index() == prepare.rendezvous_node();
  const int wanted = prepare.job().local() && !hosts_rendezvous
                         ? 0
                         : static_cast<int>(prepare.job().master_port());
  // Ranks of a job on this machine connect by 127.0.0.1, unless the user has named an address.
  const bool on_loopback =
      prepare.job().local() && prepare.job().ranks().options().master_addr().empty();
  const PortScope scope = on_loopback ? PortScope::kLoopback : PortScope::kAllAddresses;
  Result<PortReservation> reservation = ReservePort(wanted, scope);
  if (!reservation.ok() && wanted != 0 && !hosts_rendezvous) reservation = ReservePort(0, scope);
  DSL_TRY_ASSIGN(master_port_, std::move(reservation));
  return {};
}

Result<void> NodeAgent::GiveMasterPort(pb::WorkerSpec& rank_0) {
  if (!core_.prepare().job().pass_master_port()) {
    master_port_.LetOthersListen();
    return {};
  }
  ::listen(master_port_.socket.get(), SOMAXCONN);
  if (!SendWithFd(sockets_.get(), "s", master_port_.socket.get()))
    return Error{ExitCode::kInternal, "pass the socket at MASTER_PORT: " + ErrnoText(errno)};
  master_port_.socket.Reset();
  rank_0.set_takes_store_fd(true);
  return {};
}

void NodeAgent::WatchMasterPort() {
  if (core_.phase() != AgentCore::Phase::kWorking) return;
  if (rank_links_ && rank_links_->has_ranks()) return;
  const std::set<uid_t> users = ListenersAt(master_port_.port);
  if (const std::optional<uid_t> stranger = StrangerAmong(users, ::geteuid()))
    return Feed([&](Clock::time_point) { return core_.OnMasterPortTaken(*stranger); });
  if (!users.empty()) return;
  master_port_timer_.expires_after(kMasterPortWatch);
  master_port_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) WatchMasterPort();
  });
}

void NodeAgent::OpenRankLinks() {
  const pb::PrepareRequest& prepare = core_.prepare();
  // Without certificates an agent cannot tell the job's nodes from strangers.
  if (core_.nodes().size() > 1 && prepare.credentials().cert().empty()) return;
  Result<std::unique_ptr<RankLinkHub>> hub =
      RankLinkHub::Open(loop_, prepare, core_.nodes().size(), folder_->path(),
                        [this](const std::string& line) { log_.Write(LogLevel::kInfo, line); });
  if (hub.ok()) {
    rank_links_ = *std::move(hub);
    rank_socket_ = rank_links_->socket_path();
    OpenVotes();
    return;
  }
  // Programs that do without them run. Ranks that want them fail: they must not do it in clear
  // text.
  rank_socket_ = folder_->path() + "/no-ranks.sock";
  Notify(core_.node_name() +
         ": ranks of dslaunch train cannot connect to others here: " + hub.error().message);
}

void NodeAgent::OpenVotes() {
  votes_ = std::make_unique<ElectionLink>(
      loop_, *rank_links_, LimitsOf(core_),
      ElectionLink::Handlers{
          .on_vote =
              [this](uint32_t voter, const pb::Vote& vote) {
                Feed([&](Clock::time_point now) { return core_.OnVote(voter, vote, now); });
              },
          .on_voter_gone = [this](uint32_t voter) { core_.OnVoterGone(voter); },
          .on_answer =
              [this](uint32_t candidate, const pb::VoteAnswer& answer) {
                Feed([&](Clock::time_point now) {
                  return core_.OnVoteAnswer(candidate, answer, now);
                });
              },
          .on_line = [this](const std::string& line) { log_.Write(LogLevel::kInfo, line); }});
}

Result<void> NodeAgent::OpenRendezvous(const pb::FailoverRequest& last) {
  const pb::PrepareRequest& prepare = core_.prepare();
  ListenOptions listen;
  listen.loopback_only = prepare.job().local();
  listen.port = static_cast<int>(prepare.job().rdzv_port());
  listen.network_interface = prepare.job().network_interface();
  const auto age = std::chrono::duration_cast<milliseconds>(Clock::now() - made_at_);
  if (prepare.node_index() == 0) listen.advertised_address = prepare.advertised_address();
  DSL_TRY(CheckOpenFiles(core_.node_name(), core_.nodes().size(), ReadOpenFiles()));
  DSL_TRY_ASSIGN(std::unique_ptr<RendezvousServer> server,
                 RendezvousServer::Start(
                     RendezvousOptions(prepare, core_.nodes(), last, age), listen,
                     prepare.credentials(), [this](const std::string& line) {
                       asio::post(loop_, [this, line] { log_.Write(LogLevel::kInfo, line); });
                     }));
  const MutexLock lock(server_mutex_);
  server_ = std::move(server);
  return {};
}

void NodeAgent::Run(const pb::RunRequest& request, std::shared_ptr<EventSink> sink) {
  run_ = request;
  events_.Attach(RankSelection(request.shown()), std::move(sink));
  const pb::FilteredLogs& filtered = core_.prepare().job().ranks().filtered();
  if (filtered.stdout_texts_size() + filtered.stderr_texts_size() > 0)
    filtered_log_.emplace(loop_, core_.node_name(), filtered);
  Feed([&](Clock::time_point now) {
    return core_.OnRun(
        {request.rendezvous_endpoints().begin(), request.rendezvous_endpoints().end()}, now);
  });
}

pb::RenewReply NodeAgent::Renew(const pb::RenewRequest& request) {
  return core_.Renew(request, BootClock::now());
}

pb::FailoverReply NodeAgent::Failover(const pb::FailoverRequest& request) {
  pb::FailoverReply reply;
  const Result<void> failed_over = TryFailover(request);
  if (!failed_over.ok()) {
    reply.mutable_failure()->set_exit_code(ToInt(failed_over.error().code));
    reply.mutable_failure()->set_message(core_.node_name() + ": " + failed_over.error().message);
    return reply;
  }
  pb::RendezvousOpened& opened = *reply.mutable_opened();
  if (!server_) return reply;
  for (const std::string& endpoint : server_->endpoints())
    opened.add_rendezvous_endpoints(endpoint);
  return reply;
}

Result<void> NodeAgent::TryFailover(const pb::FailoverRequest& request) {
  DSL_TRY(core_.CheckFailover(request));
  if (request.rendezvous_node() == core_.prepare().node_index()) DSL_TRY(OpenRendezvous(request));
  Feed([&](Clock::time_point now) { return core_.OnFailover(request, now); });
  return {};
}

void NodeAgent::Stop(const pb::StopRequest& request) {
  Feed([&](Clock::time_point) { return core_.OnStop(request.cause(), request.kill_now()); });
}

void NodeAgent::Signal(int signal_number) {
  Feed([&](Clock::time_point) { return core_.OnSignal(signal_number); });
}

pb::InputReply NodeAgent::Input(const pb::InputRequest& request) {
  pb::InputReply reply;
  if (!stdin_ || !core_.prepare().job().rank_stdin().from_front_end()) return reply;
  reply.set_full(!stdin_->Write(request.data()));
  if (request.end() && !reply.full()) stdin_->End();
  return reply;
}

Result<std::string> NodeAgent::Detach() {
  if (!attach_socket_) {
    return Error{
        ExitCode::kUsage,
        core_.node_name() + ": this job was not started with --detach, so it cannot be detached"};
  }
  const std::string path = attach_socket_->path();
  Feed([&](Clock::time_point now) { return core_.OnDetach(path, now, BootClock::now()); });
  return path;
}

void NodeAgent::Attach(const pb::AttachRequest& request, std::shared_ptr<EventSink> sink) {
  events_.AddViewer(request, std::move(sink));
}

void NodeAgent::OnViewerOver(const EventSink* sink) {
  events_.RemoveViewer(sink);
  Feed([this](Clock::time_point now) { return core_.OnViewerOver(now); });
}

void NodeAgent::OnStreamOver() {
  Feed([this](Clock::time_point now) { return core_.OnStreamOver(now); });
}

pb::JobStatus NodeAgent::Status() const {
  using Phase = AgentCore::Phase;
  const pb::PrepareRequest& prepare = core_.prepare();
  const pb::Assignment& assignment = core_.workers().assignment();
  pb::JobStatus status;
  status.set_job_id(prepare.job().job_id());
  status.set_attempt(core_.attempt());
  status.set_restart_count(assignment.restart_count());
  status.set_phase(core_.phase() == Phase::kTornDown   ? pb::JobStatus::ENDED
                   : core_.phase() == Phase::kStopping ? pb::JobStatus::STOPPING
                   : events_.running()                 ? pb::JobStatus::RUNNING
                   : core_.attempt() > 1 || core_.is_electing() || core_.phase() == Phase::kDraining
                       ? pb::JobStatus::RESTARTING
                       : pb::JobStatus::JOINING);
  *status.mutable_cause() = core_.outcome();
  *status.mutable_members() = assignment.members();
  status.set_first_rank(assignment.first_rank());
  status.set_world_size(assignment.world_size());
  for (const AttemptWorker& worker : core_.workers().all())
    status.add_pids(worker.ended ? 0 : worker.pid);
  status.set_started_unix_ms(UnixMs(started_at_));
  if (ended_at_) status.set_ended_unix_ms(UnixMs(*ended_at_));
  if (folder_) status.set_job_dir(folder_->path());
  status.set_description(prepare.job().ranks().description());
  for (const auto& [rank, line] : events_.newest_status()) {
    pb::WorkerStatus& newest = *status.add_status();
    newest.set_rank(rank);
    newest.set_line(line);
  }
  const pb::Timeouts& timeouts = prepare.job().timeouts();
  status.set_stop_within_ms(timeouts.grace_ms() + timeouts.teardown_ms() + timeouts.dead_ms());
  return status;
}

// --- The supervisor ---

void NodeAgent::OnSupervisorMessage(std::string_view bytes) {
  pb::SupervisorEvent event;
  if (!event.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return OnSupervisorGone();
  Feed([&](Clock::time_point now) { return core_.OnSupervisorEvent(event, now); });
}

void NodeAgent::OnSupervisorGone() {
  Feed([this](Clock::time_point now) { return core_.OnSupervisorGone(now); });
}

// --- Time ---

void NodeAgent::Beat(bool loop_lives, bool tells_rendezvous) {
  std::shared_ptr<RendezvousServer> server;
  {
    const MutexLock lock(server_mutex_);
    server = server_;
  }
  // Time passes for the rendezvous even if this node's own part is dead: it is to find that out.
  if (server) server->Tick();
  if (!loop_lives) return;
  // The supervisor judges by the same beats as the rendezvous, else it would kill an agent that
  // only waits for its disk.
  pb::SupervisorRequest alive;
  *alive.mutable_alive() = core_.Alive(BootClock::now());
  supervisor_.Send(alive);
  if (tells_rendezvous) link_->Beat();
}

void NodeAgent::Tick() {
  if (core_.prepared()) {
    heart_->LoopTurned();
    link_->SetBeat(core_.attempt(), core_.workers().Progress(Clock::now()));
    events_.EmitAlive(/*to_front_end=*/core_.IsUnasked(BootClock::now()));
    if (core_.IsRendezvousQuiet(Clock::now())) link_->Refresh();
    for (std::string& notice : log_keeping_->Turn(UnixMs())) Notify(std::move(notice));
  }
  const Clock::duration late = Clock::now() - tick_timer_.expiry();
  Feed([&](Clock::time_point now) { return core_.OnTick(now, BootClock::now(), late); });
  tick_timer_.expires_after(core_.tick_interval());
  tick_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) Tick();
  });
}

void NodeAgent::Notify(std::string text) {
  log_.Write(LogLevel::kInfo, text);
  pb::NodeEvent event;
  event.mutable_notice()->set_message(std::move(text));
  events_.Emit(std::move(event));
}

}  // namespace dslaunch
