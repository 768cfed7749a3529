// What the agent's core wants done, carried out.
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "agent/host/node_identity.h"
#include "agent/host/oom.h"
#include "agent/host/python_environment.h"
#include "agent/host/thread_states.h"
#include "agent/mpi/mpi_environment.h"
#include "agent/node/kept_result.h"
#include "agent/node/node_agent.h"
#include "agent/supervisor/orphan_sweep.h"
#include "net/addresses.h"
#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxThreadLines = 8;  // for each rank that hangs
// Times dead_ms: the core judges the silence of the rendezvous, before its connection does.
constexpr int kRendezvousPatience = 2;

}  // namespace

void NodeAgent::CarryOut(AgentActions actions) {
  if (!actions_.CarryOut(std::move(actions), [this](auto& one) { Do(one); })) return;
  if (pmix_ && !core_.MayRanksRun()) pmix_.reset();
  if (core_.phase() == AgentCore::Phase::kTornDown && !ended_at_)
    ended_at_ = std::chrono::system_clock::now();
}

// --- To the front end ---

void NodeAgent::Do(agent_action::EmitStatus& action) {
  events_.EmitStatus(action.rank, std::move(action.line), action.is_evaluation);
}

void NodeAgent::Do(agent_action::DetachFrontEnd&) { events_.Detach(); }

void NodeAgent::Do(agent_action::FollowRank& action) {
  events_.FollowRank(action.attempt, action.rank, action.local_rank, action.folder);
  if (filtered_log_) filtered_log_->FollowRank(action.rank, action.local_rank, action.folder);
}

void NodeAgent::Do(agent_action::EndRankOutput& action) {
  if (action.others_follow) events_.EndAttempt();
  if (filtered_log_) filtered_log_->EndAttempt();
}

// --- The rendezvous ---

void NodeAgent::Do(agent_action::SendToRendezvous& action) {
  const uint64_t attempt = action.message.attempt();
  link_->Send(attempt, std::move(action.message));
}

void NodeAgent::Do(agent_action::FindRendezvous& action) {
  find_ = action;
  DialRendezvous(action, [this](const Result<RendezvousRoute>& route) {
    if (route.ok()) route_ = *route;
    const Result<std::string> address =
        route.ok() ? Result<std::string>(route->address) : route.error();
    Feed([&](Clock::time_point now) { return core_.OnRendezvousFound(address, now); });
  });
}

void NodeAgent::DialRendezvous(const agent_action::FindRendezvous& action,
                               std::function<void(Result<RendezvousRoute>)> then) {
  // It blocks for as long as it may take, and nothing ends it: it may outlive this agent.
  std::thread([action, then = std::move(then), poster = poster_,
               job_id = core_.prepare().job().job_id(), credentials = core_.prepare().credentials(),
               silent_after =
                   kRendezvousPatience * milliseconds(core_.prepare().job().timeouts().dead_ms()),
               deadline = Deadline::After(action.limit)] {
    Result<RendezvousRoute> route = FindRendezvous(action.endpoints, job_id, action.node_index,
                                                   credentials, deadline, silent_after);
    poster->Post([then, route = std::move(route)] { then(route); });
  }).detach();
}

void NodeAgent::Do(agent_action::JoinRendezvous& action) {
  action.join.set_identity(NodeIdentity());
  action.join.set_master_port(static_cast<uint32_t>(master_port_.port));
  if (rank_links_) action.join.set_link_port(static_cast<uint32_t>(rank_links_->port()));
  if (action.in_process) route_ = {server_->InProcessChannel(), ""};
  // A node that does not come back within dead_ms is silent for too long, and lost.
  agent_action::FindRendezvous again = find_;
  again.limit = milliseconds(core_.prepare().job().timeouts().dead_ms());
  RendezvousLink::Redial redial;
  if (!action.in_process) {
    redial = [this, again](std::function<void(Result<RendezvousRoute>)> then) {
      DialRendezvous(again, std::move(then));
    };
  }
  link_->Join(route_, std::move(action.join), std::move(redial));
}

void NodeAgent::Do(agent_action::LeaveRendezvous&) {
  std::shared_ptr<RendezvousServer> server;
  {
    const MutexLock lock(server_mutex_);
    server.swap(server_);
  }
  server.reset();
  link_->Leave();
}

void NodeAgent::Do(agent_action::SendVote& action) {
  if (votes_) votes_->SendVote(action);
}

void NodeAgent::Do(agent_action::WithdrawVote&) {
  if (votes_) votes_->WithdrawVote();
}

void NodeAgent::Do(agent_action::AnswerVote& action) {
  if (votes_) votes_->AnswerVote(action);
}

void NodeAgent::Do(agent_action::OpenRendezvous& action) {
  const Result<void> opened = OpenRendezvous(action.last);
  const Result<std::vector<std::string>> endpoints =
      opened.ok() ? Result<std::vector<std::string>>(server_->endpoints()) : opened.error();
  Feed([&](Clock::time_point now) { return core_.OnRendezvousOpened(endpoints, now); });
}

// --- The workers ---

Result<void> NodeAgent::OpenStdin(pb::WorkerSpec& rank_0) {
  const pb::RankStdin& wanted = core_.prepare().job().rank_stdin();
  const std::string folder = rank_0.stdout_path().substr(0, rank_0.stdout_path().rfind('/'));
  if (stdin_) stdin_->Close();
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

std::string NodeAgent::WhyNoPmix() const {
  if (pmix_server_.empty())
    return "this dslaunch was built without OpenPMIx (Debian, Ubuntu: libpmix-dev)";
  if (PmixLibraryFolder(program_->environment()).empty())
    return core_.node_name() +
           " has no OpenPMIx library, libpmix.so.2; install it there (Debian, Ubuntu: libpmix2; "
           "Fedora: pmix)";
  return "";
}

Result<void> NodeAgent::OpenMpi(const agent_action::PlanWorkers& plan) {
  const pb::PrepareRequest& prepare = core_.prepare();
  std::vector<pb::Node> members;
  for (const uint32_t index : IndexesOf(plan.assignment.members(), core_.nodes().size()))
    members.push_back(core_.nodes().At(index));
  PmixHelperOptions options;
  DSL_TRY_ASSIGN(options.job,
                 MakePmixJob(prepare.job().job_id(), plan.attempt, plan.assignment, members));
  options.job.set_rank_socket(rank_socket_);
  if (run_.mpi().server() == pb::MpiService::PMIX) options.program = pmix_server_;
  options.no_pmix = run_.mpi().no_pmix();
  options.environment = program_->environment();
  options.log_path = folder_->path() + "/pmix.log";
  DSL_TRY_ASSIGN(pmix_,
                 PmixHelper::Open(
                     loop_, std::move(options),
                     {.on_failed =
                          [this](const std::string& why) {
                            Feed([&](Clock::time_point) { return core_.OnMpiFailed(why); });
                          },
                      .on_aborted =
                          [this](const pb::PmixAbort& aborted) {
                            Feed([&](Clock::time_point) { return core_.OnMpiAbort(aborted); });
                          },
                      .on_rank =
                          [this](const pb::PmixRank& rank) {
                            Feed([&](Clock::time_point now) { return core_.OnMpiRank(rank, now); });
                          }}));
  return {};
}

void NodeAgent::Do(agent_action::StartMpiServer&) {
  if (pmix_) return pmix_->Begin();
  if (!core_.MayRanksRun()) return;
  Feed([this](Clock::time_point) {
    return core_.OnMpiFailed("ranks of other nodes use MPI, which those of this node cannot join");
  });
}

void NodeAgent::Do(agent_action::AskMpiServer& action) {
  if (pmix_) return pmix_->Ask(action.local_rank);
  pb::PmixRank answer;  // there is no server that the rank could have joined
  answer.set_local_rank(action.local_rank);
  answer.set_is_answer(true);
  Feed([&](Clock::time_point now) { return core_.OnMpiRank(answer, now); });
}

void NodeAgent::AddMpi(pb::SpawnWorkers& specs) const {
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

Result<PlannedWorkers> NodeAgent::PlanRanks(const agent_action::PlanWorkers& plan) {
  AttemptPlace place;
  place.attempt = plan.attempt;
  place.assignment = plan.assignment;
  place.use_cuda = run_.use_cuda();
  place.rendezvous_address = link_->address();
  place.rank_socket = rank_socket_;
  DSL_TRY_ASSIGN(PlannedWorkers planned,
                 program_->Plan(core_.prepare(), core_.own_node(), place, *folder_));
  if (plan.assignment.first_rank() == 0 && planned.specs.workers_size() > 0) {
    pb::WorkerSpec& rank_0 = *planned.specs.mutable_workers(0);
    DSL_TRY(OpenStdin(rank_0));
    DSL_TRY(GiveMasterPort(rank_0));
  }
  AddMpi(planned.specs);
  return planned;
}

RankLinkPlan NodeAgent::PlanRankLinks(const agent_action::PlanWorkers& plan) const {
  const pb::Assignment& assignment = plan.assignment;
  std::vector<NodeSlots> members;
  for (const uint32_t node : IndexesOf(assignment.members(), core_.nodes().size()))
    members.push_back({node, core_.nodes().SlotsOf(node)});
  RankLinkPlan links;
  links.attempt = plan.attempt;
  links.ranks = NumberRanks(std::move(members));
  if (assignment.link_port() != 0) {
    links.rank_0_endpoint =
        JoinHostPort(assignment.master_addr(), static_cast<int>(assignment.link_port()));
  }
  return links;
}

void NodeAgent::Do(agent_action::PlanWorkers& action) {
  if (rank_links_) rank_links_->BeginAttempt(PlanRankLinks(action));
  if (run_.mpi().server() != pb::MpiService::NONE) {
    if (const Result<void> opened = OpenMpi(action); !opened.ok()) {
      if (run_.mpi().is_required()) return FailToPlan(action.attempt, opened.error());
      Notify(core_.node_name() +
             ": ranks that use MPI cannot be joined here: " + opened.error().message);
    }
  }
  Result<PlannedWorkers> planned = PlanRanks(action);
  Result<pb::SpawnWorkers> specs =
      planned.ok() ? Result<pb::SpawnWorkers>(std::move(planned->specs)) : planned.error();
  if (planned.ok()) {
    for (std::string& notice : planned->notices) Notify(std::move(notice));
  }
  Feed([&](Clock::time_point) { return core_.OnWorkersPlanned(action.attempt, std::move(specs)); });
  if (!planned.ok()) return;
  if (action.assignment.first_rank() == 0) WatchMasterPort();
  log_keeping_->StartAttempt(folder_->AttemptFolder(action.attempt));
  for (const AttemptWorker& worker : core_.workers().all())
    log_keeping_->AddRank(worker.rank, worker.folder);
  workers_life_ = {action.attempt, program_->program().cwd, Clock::now(), OutOfMemoryKills(),
                   PythonInterpreterOf(program_->program().argv.front(), program_->environment())};
}

void NodeAgent::FailToPlan(uint64_t attempt, const Error& error) {
  const Error named = {error.code, core_.node_name() + ": " + error.message};
  Feed([&](Clock::time_point) { return core_.OnWorkersPlanned(attempt, named); });
}

void NodeAgent::Do(agent_action::DescribeWorker& action) {
  const AttemptWorker* worker = core_.workers().Find(action.exited.local_rank());
  if (worker == nullptr) return;
  if (worker->rank == 0 && stdin_) {
    stdin_->Drain();
    stdin_->Close();
  }
  for (std::string& notice : log_keeping_->OnRankEnd()) Notify(std::move(notice));
  WorkerEnd end = DescribeWorkerEnd(action.exited, *worker, workers_life_);
  Feed([&](Clock::time_point now) {
    return core_.OnWorkerDescribed(action, std::move(end), link_->round_trip_us(), now);
  });
}

void NodeAgent::Do(agent_action::InspectWorker& action) {
  const std::string threads =
      DescribeThreads(ReadThreads(action.pid), kMaxThreadLines, sysconf(_SC_CLK_TCK));
  Notify(action.text + (threads.empty() || threads.front() == '\n' ? "" : "; ") + threads);
}

void NodeAgent::Do(agent_action::ReservePort&) {
  const Result<void> reserved = ReserveMasterPort();
  const Result<uint32_t> port =
      reserved.ok() ? Result<uint32_t>(static_cast<uint32_t>(master_port_.port)) : reserved.error();
  Feed([&](Clock::time_point now) { return core_.OnPortReserved(port, now); });
}

void NodeAgent::Do(agent_action::SweepOrphans& action) {
  const pb::PrepareRequest& prepare = core_.prepare();
  const Orphans orphans = {.job_id = prepare.job().job_id(),
                           .groups = std::move(action.groups),
                           .session = getsid(0),
                           .cgroup = std::move(action.cgroup)};
  GracefulKillOptions graceful_kill;
  graceful_kill.grace = milliseconds(prepare.job().timeouts().grace_ms());
  graceful_kill.teardown = milliseconds(prepare.job().timeouts().teardown_ms());
  const LeftProcesses left = ::dslaunch::SweepOrphans(orphans, graceful_kill);
  Feed([&](Clock::time_point now) { return core_.OnOrphansSwept(left, now); });
}

// --- Time and the end ---

void NodeAgent::Do(agent_action::StartHeart& action) {
  heart_ = std::make_unique<Heartbeat>(
      action.interval, action.patience,
      [this, ticks_per_beat = action.ticks_per_beat, ticks = uint32_t{0}](bool loop_lives) mutable {
        Beat(loop_lives, ticks++ % ticks_per_beat == 0);
      });
}

void NodeAgent::Do(agent_action::WriteResult& action) {
  pb::JobResult& result = action.result;
  result.set_started_unix_ms(UnixMs(started_at_));
  result.set_ended_unix_ms(UnixMs(ended_at_.value_or(std::chrono::system_clock::now())));
  const pb::PrepareRequest& prepare = core_.prepare();
  const Result<std::string> kept =
      KeepResult(result, folder_->path(),
                 OwnSecondResultFolders(prepare.job().job_id(), prepare.node_index()));
  log_.Write(kept.ok() ? LogLevel::kInfo : LogLevel::kError,
             kept.ok() ? "the result is exit code " + std::to_string(result.exit_code()) +
                             ", kept in " + *kept
                       : kept.error().message);
}

void NodeAgent::Do(agent_action::Quit&) {
  pmix_.reset();
  if (stdin_) stdin_->Close();
  attach_socket_.reset();
  votes_.reset();
  rank_links_.reset();
  pid_file_.reset();
  loop_.stop();
}

}  // namespace dslaunch
