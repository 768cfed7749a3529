#include "agent/node/node_ranks.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/accelerators/node_accelerators.h"
#include "agent/host/launcher_use.h"
#include "agent/host/oom.h"
#include "agent/host/port_listeners.h"
#include "agent/host/python_environment.h"
#include "agent/logs/log_space.h"
#include "agent/mpi/mpi_environment.h"
#include "base/errno_text.h"
#include "base/os/pass_fd.h"
#include "base/os/process_tree.h"
#include "net/addresses.h"
#include "proto/contract/old_jobs.h"
#include "proto/contract/worker_env.h"
#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

// Interval at which the listeners of MASTER_PORT are checked. Ranks that find another user's store
// at that port take longer than this to use it.
constexpr milliseconds kMasterPortWatch(100);

// Removes old folders of jobs whose front end is another machine, because only a front end on this
// machine removes its jobs' folders itself. There may be many files, so this runs on a separate
// thread, which ends with this process.
void RemoveOldJobsBeside(const std::filesystem::path& node_folder) {
  // The node's folder is JOBS/JOB/nodes/NODE, so JOBS is three levels above it.
  const std::filesystem::path jobs = node_folder.parent_path().parent_path().parent_path();
  std::thread([jobs] {
    RemoveOldJobs(jobs.string(), std::time(nullptr), SIZE_MAX, [&](const std::string& job_id) {
      std::error_code error;
      return !std::filesystem::exists(jobs / job_id / "job.json", error) && !error &&
             ProcessesWithVariable(kJobIdVariable, job_id).empty();
    });
  }).detach();
}

}  // namespace

NodeRanks::NodeRanks(asio::io_context& loop, NodeOutput& out, NodeRendezvous& rendezvous,
                     SupervisorLink& supervisor, NodeSampler& sampler, int sockets_fd,
                     std::string_view pmix_server)
    : loop_(loop),
      out_(out),
      core_(out.core()),
      rendezvous_(rendezvous),
      sampler_(sampler),
      sockets_(sockets_fd),
      pmix_server_(pmix_server),
      master_port_timer_(loop),
      watch_(loop, out, supervisor.stacks(), supervisor.flights(),
             [this, &rendezvous] {
               rendezvous.Turn(watch_.Stillness());
               rendezvous.Beat();
             }),
      check_(loop) {}

// --- Preparation of the job ---

Result<void> NodeRanks::OpenFolder() {
  const pb::PrepareRequest& request = core_.job().request();
  const std::string& node_name = core_.job().node_name();
  DSL_TRY_ASSIGN(program_, NodeProgram::Resolve(request, core_.job().nodes()));
  DSL_TRY_ASSIGN(folder_, JobFolder::Create(request.job().ranks().log_dir(), request.job().job_id(),
                                            node_name, program_->environment()));
  DSL_TRY(CheckLogSpace(node_name, folder(), ReadLogSpace(folder())));
  DSL_TRY(out_.log().Open(folder() + "/agent.log"));
  if (!program_->notice().empty()) out_.Notify(program_->notice());
  if (request.job().ranks().log_dir().empty()) RemoveOldJobsBeside(folder());
  log_keeping_.emplace(node_name, request.job().log_max_bytes());
  out_.Log("job " + request.job().job_id() + ", node " + node_name + ": prepared to run " +
           program_->program().argv.front() + " in " + program_->program().cwd);
  return {};
}

Result<void> NodeRanks::Describe(pb::PreparedNode& info) {
  const pb::PrepareRequest& request = core_.job().request();
  info.set_job_dir(folder());
  const pb::JobSpec& job = request.job();
  const Result<NodeAccelerators> found =
      FindAccelerators(job.device(), job.only_cuda(), LookUpIn(program_->environment()),
                       job.ranks().options().virtual_local_rank());
  if (!found.ok() && job.device() != pb::DEVICE_CPU)
    return Error{found.error().code, core_.job().node_name() + ": " + found.error().message};
  info.set_device(pb::DEVICE_CPU);
  if (found.ok()) {
    // Chosen devices may be any devices of the node, so all devices of the node count if devices
    // were chosen.
    info.set_gpus(static_cast<uint32_t>(request.devices().empty() ? found->visible.size()
                                                                  : found->numbered.size()));
    info.set_device(found->device());
  }
  if (request.node_index() == 0 && !request.job().ranks().program().nested()) {
    const ResolvedProgram& program = program_->program();
    const std::string warning = ShellLauncherWarning(program.argv, program.cwd);
    if (!warning.empty()) out_.Notify(warning);
  }
  info.set_no_pmix(WhyNoPmix());
  return {};
}

Result<void> NodeRanks::OpenPorts() {
  DSL_TRY(CheckNetworkInterface(core_.job().request()));
  DSL_TRY(ReserveMasterPort());
  OpenLinks();
  return {};
}

void NodeRanks::CheckLogs() {
  for (std::string& notice : log_keeping_->Turn(UnixMs())) out_.Notify(std::move(notice));
}

// --- Ports and connections of the ranks ---

// Reserves the port at which rank 0 will listen if it runs on this node. A port that the user chose
// applies to the node that hosts the rendezvous, where rank 0 starts. Other nodes may be on the
// same machine, so they get other ports.
Result<void> NodeRanks::ReserveMasterPort() {
  master_port_ = PortReservation();
  const pb::PrepareRequest& prepare = core_.job().request();
  const bool hosts_rendezvous = prepare.node_index() == core_.membership().host();
  const int wanted = prepare.job().local() && !hosts_rendezvous
                         ? 0
                         : static_cast<int>(prepare.job().master_port());
  // Ranks of a job on this machine connect through 127.0.0.1 unless the user has named an address,
  // so their port is reserved on loopback only.
  const bool on_loopback =
      prepare.job().local() && prepare.job().ranks().options().master_addr().empty();
  const PortScope scope = on_loopback ? PortScope::kLoopback : PortScope::kAllAddresses;
  Result<PortReservation> reservation = ReservePort(wanted, scope);
  if (!reservation.ok() && wanted != 0 && !hosts_rendezvous) reservation = ReservePort(0, scope);
  DSL_TRY_ASSIGN(master_port_, std::move(reservation));
  return {};
}

Result<void> NodeRanks::GiveMasterPort(pb::WorkerSpec& rank_0) {
  if (!core_.job().spec().pass_master_port()) {
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

void NodeRanks::WatchMasterPort() {
  if (!core_.workers().is_working()) return;
  if (rank_links_ && rank_links_->has_ranks()) return;
  const std::set<uid_t> users = ListenersAt(master_port_.port);
  if (const std::optional<uid_t> stranger = StrangerAmong(users, ::geteuid()))
    return out_.Feed([&](Clock::time_point) { core_.workers().OnMasterPortTaken(*stranger); });
  if (!users.empty()) return;
  master_port_timer_.expires_after(kMasterPortWatch);
  master_port_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) WatchMasterPort();
  });
}

void NodeRanks::OpenLinks() {
  const pb::PrepareRequest& prepare = core_.job().request();
  // Without certificates an agent cannot distinguish the job's nodes from other machines, so ranks
  // get no connections to other nodes.
  if (core_.job().nodes().size() > 1 && prepare.credentials().cert().empty()) return;
  Result<std::unique_ptr<RankLinkHub>> hub =
      RankLinkHub::Open(loop_, prepare, core_.job().nodes().size(), folder(),
                        [this](const std::string& line) { out_.Log(line); });
  if (hub.ok()) {
    rank_links_ = *std::move(hub);
    rank_socket_ = rank_links_->socket_path();
    return;
  }
  // The job runs without connections between its ranks, which programs that do not use them do not
  // need. The path does not exist, so other programs fail instead of connecting without encryption.
  rank_socket_ = folder() + "/no-ranks.sock";
  out_.Notify(core_.job().node_name() +
              ": ranks of dslaunch train cannot connect to others here: " + hub.error().message);
}

RankLinkPlan NodeRanks::PlanLinks(const agent_action::PlanWorkers& plan) const {
  const pb::Assignment& assignment = plan.assignment;
  std::vector<NodeSlots> members;
  for (const uint32_t node : IndexesOf(assignment.members(), core_.job().nodes().size()))
    members.push_back({node, core_.job().nodes().SlotsOf(node)});
  RankLinkPlan links;
  links.attempt = plan.attempt;
  links.ranks = NumberRanks(std::move(members));
  if (assignment.link_port() != 0) {
    links.rank_0_endpoint =
        JoinHostPort(assignment.master_addr(), static_cast<int>(assignment.link_port()));
  }
  return links;
}

// --- MPI server of the ranks ---

std::string NodeRanks::WhyNoPmix() const {
  if (pmix_server_.empty())
    return "this dslaunch was built without OpenPMIx (Debian, Ubuntu: libpmix-dev)";
  if (PmixLibraryFolder(program_->environment()).empty())
    return core_.job().node_name() +
           " has no OpenPMIx library, libpmix.so.2; install it there (Debian, Ubuntu: libpmix2; "
           "Fedora: pmix)";
  return "";
}

Result<void> NodeRanks::OpenMpi(const agent_action::PlanWorkers& plan) {
  const pb::PrepareRequest& prepare = core_.job().request();
  std::vector<pb::Node> members;
  for (const uint32_t index : IndexesOf(plan.assignment.members(), core_.job().nodes().size()))
    members.push_back(core_.job().nodes().At(index));
  PmixHelperOptions options;
  DSL_TRY_ASSIGN(options.job,
                 MakePmixJob(prepare.job().job_id(), plan.attempt, plan.assignment, members));
  options.job.set_rank_socket(rank_socket_);
  if (run_.mpi().server() == pb::MpiService::PMIX) options.program = pmix_server_;
  options.no_pmix = run_.mpi().no_pmix();
  options.environment = program_->environment();
  options.log_path = folder() + "/pmix.log";
  DSL_TRY_ASSIGN(
      pmix_, PmixHelper::Open(
                 loop_, std::move(options),
                 {.on_failed =
                      [this](const std::string& why) {
                        out_.Feed([&](Clock::time_point) { core_.mpi().OnFailed(why); });
                      },
                  .on_aborted =
                      [this](const pb::PmixAbort& aborted) {
                        out_.Feed([&](Clock::time_point) { core_.mpi().OnAbort(aborted); });
                      },
                  .on_rank =
                      [this](const pb::PmixRank& rank) {
                        out_.Feed([&](Clock::time_point now) { core_.mpi().OnRank(rank, now); });
                      }}));
  return {};
}

void NodeRanks::AddMpi(pb::SpawnWorkers& specs) const {
  if (!pmix_) return;
  const auto inherited =
      std::ranges::remove_if(*specs.mutable_env(), &IsOfAnotherMpiServer).begin();
  specs.mutable_env()->erase(inherited, specs.mutable_env()->end());
  const std::vector<PmixHelper::Client>& clients = pmix_->clients();
  const int count = std::min(specs.workers_size(), static_cast<int>(clients.size()));
  for (int i = 0; i < count; ++i) {
    const PmixHelper::Client& client = clients[static_cast<size_t>(i)];
    for (const std::string& entry : client.environment) specs.mutable_workers(i)->add_env(entry);
    specs.mutable_workers(i)->set_pmi_socket(client.pmi_path);
  }
}

void NodeRanks::Do(agent_action::StartMpiServer&) {
  if (pmix_) return pmix_->Begin();
  if (!core_.workers().MayRanksRun()) return;
  out_.Feed([this](Clock::time_point) {
    core_.mpi().OnFailed("ranks of other nodes use MPI, which those of this node cannot join");
  });
}

void NodeRanks::Do(agent_action::AskMpiServer& action) {
  if (pmix_) return pmix_->Ask(action.local_rank);
  pb::PmixRank answer;  // without a server, the rank cannot have called MPI_Init
  answer.set_local_rank(action.local_rank);
  answer.set_is_answer(true);
  out_.Feed([&](Clock::time_point now) { core_.mpi().OnRank(answer, now); });
}

void NodeRanks::CheckMpi() {
  if (pmix_ && !core_.workers().MayRanksRun()) pmix_.reset();
}

// --- stdin of rank 0 ---

Result<void> NodeRanks::OpenStdin(pb::WorkerSpec& rank_0) {
  const pb::RankStdin& wanted = core_.job().spec().rank_stdin();
  const std::string folder = rank_0.stdout_path().substr(0, rank_0.stdout_path().rfind('/'));
  CloseStdin();
  stdin_.reset();
  if (wanted.terminal()) {
    const TerminalSize size = {.columns = static_cast<uint16_t>(wanted.columns()),
                               .rows = static_cast<uint16_t>(wanted.rows())};
    DSL_TRY_ASSIGN(stdin_, RankStdin::OpenTerminal(loop_, folder, size));
  } else if (wanted.from_front_end()) {
    DSL_TRY_ASSIGN(stdin_, RankStdin::OpenPipe(loop_, folder));
  }
  if (!stdin_) return {};
  rank_0.set_stdin_path(stdin_->path());
  rank_0.set_on_terminal(stdin_->is_terminal());
  return {};
}

pb::InputReply NodeRanks::Input(const pb::InputRequest& request) {
  pb::InputReply reply;
  if (!stdin_ || !core_.job().spec().rank_stdin().from_front_end()) return reply;
  reply.set_full(!stdin_->Write(request.data()));
  if (request.end() && !reply.full()) stdin_->End();
  return reply;
}

void NodeRanks::CloseStdin() {
  if (stdin_) stdin_->Close();
}

// --- Ranks of an attempt ---

Result<PlannedWorkers> NodeRanks::PlanRanks(const agent_action::PlanWorkers& plan) {
  AttemptPlace place;
  place.attempt = plan.attempt;
  place.assignment = plan.assignment;
  place.device = run_.device();
  place.rendezvous_address = rendezvous_.address();
  place.rank_socket = rank_socket_;
  DSL_TRY_ASSIGN(PlannedWorkers planned,
                 program_->Plan(core_.job().request(), core_.job().node(), place, *folder_));
  if (plan.assignment.first_rank() == 0 && planned.specs.workers_size() > 0) {
    pb::WorkerSpec& rank_0 = *planned.specs.mutable_workers(0);
    DSL_TRY(OpenStdin(rank_0));
    DSL_TRY(GiveMasterPort(rank_0));
  }
  AddMpi(planned.specs);
  return planned;
}

void NodeRanks::Do(agent_action::PlanWorkers& action) {
  if (rank_links_) rank_links_->BeginAttempt(PlanLinks(action));
  if (run_.mpi().server() != pb::MpiService::NONE) {
    if (const Result<void> opened = OpenMpi(action); !opened.ok()) {
      const std::string& node_name = core_.job().node_name();
      if (run_.mpi().is_required()) {
        const Error named = {opened.error().code, node_name + ": " + opened.error().message};
        return out_.Feed(
            [&](Clock::time_point) { core_.workers().OnPlanned(action.attempt, named); });
      }
      out_.Notify(node_name +
                  ": ranks that use MPI cannot be joined here: " + opened.error().message);
    }
  }
  Result<PlannedWorkers> planned = PlanRanks(action);
  Result<pb::SpawnWorkers> specs =
      planned.ok() ? Result<pb::SpawnWorkers>(std::move(planned->specs)) : planned.error();
  if (planned.ok()) {
    sampler_.SetDevices(std::move(planned->devices));
    for (std::string& notice : planned->notices) out_.Notify(std::move(notice));
  }
  out_.Feed(
      [&](Clock::time_point) { core_.workers().OnPlanned(action.attempt, std::move(specs)); });
  if (!planned.ok()) return;
  if (action.assignment.first_rank() == 0) WatchMasterPort();
  log_keeping_->StartAttempt(folder_->AttemptFolder(action.attempt));
  for (const AttemptWorker& worker : core_.workers().ranks().all())
    log_keeping_->AddRank(worker.rank, worker.folder);
  workers_life_ = {action.attempt, program_->program().cwd, Clock::now(), OutOfMemoryKills(),
                   PythonInterpreterOf(program_->program().argv.front(), program_->environment())};
  watch_.Begin();
}

void NodeRanks::Do(agent_action::DescribeWorker& action) {
  const AttemptWorker* worker = core_.workers().ranks().Find(action.exited.local_rank());
  if (worker == nullptr) return;
  if (worker->rank == 0 && stdin_) {
    stdin_->Drain();
    stdin_->Close();
  }
  for (std::string& notice : log_keeping_->OnRankEnd()) out_.Notify(std::move(notice));
  WorkerEnd end = DescribeWorkerEnd(action.exited, *worker, workers_life_);
  out_.Feed([&](Clock::time_point now) {
    core_.OnWorkerDescribed(action, std::move(end), rendezvous_.round_trip_us(), now);
  });
}

void NodeRanks::Do(agent_action::ReservePort& action) {
  check_.Cancel();
  const Result<void> reserved = ReserveMasterPort();
  const Result<uint32_t> port =
      reserved.ok() ? Result<uint32_t>(static_cast<uint32_t>(master_port_.port)) : reserved.error();
  const auto answer = [this, port](const std::string& unfit) {
    out_.Feed([&](Clock::time_point now) { core_.OnPortReserved(port, unfit, now); });
  };
  if (!action.check) return answer("");
  const pb::PrepareRequest& prepare = core_.job().request();
  pb::MeasureRequest request = prepare.job().node_check();
  // The check measures the first GPUs of the node, so it measures GPUs only if the ranks use the
  // first GPUs.
  const bool uses_first_gpus = run_.device() == pb::DEVICE_CUDA && prepare.devices().empty() &&
                               !LookUpIn(program_->environment())("CUDA_VISIBLE_DEVICES");
  request.set_gpus(uses_first_gpus ? core_.job().node().slots() : 0);
  check_.Begin(std::move(request), milliseconds(prepare.job().timeouts().check_ms()), answer);
}

}  // namespace dslaunch
