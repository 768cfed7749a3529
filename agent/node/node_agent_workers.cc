// A node's ranks in the current epoch, from their assignment to their last word.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "agent/host/oom.h"
#include "agent/host/thread_states.h"
#include "agent/node/node_agent.h"
#include "base/signal_name.h"
#include "proto/contract/status_line.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxThreadLines = 8;  // for each rank that hangs

}  // namespace

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
  Result<WorkerPlan> plan = PlanWorkers(message.assignment());
  Result<pb::SpawnWorkers> specs =
      plan.ok() ? MakeWorkerSpecs(*plan, program_, environment_, *folder_) : plan.error();
  if (!specs.ok()) {
    return StopJob(MakeCause(pb::Cause::START_FAILED, prepare_.node_index(), specs.error().code,
                             specs.error().message));
  }
  workers_ = EpochWorkers(epoch_, message.assignment(), *specs);
  log_keeping_->StartAttempt(folder_->AttemptFolder(epoch_));
  for (const EpochWorker& worker : workers_.all())
    log_keeping_->AddRank(worker.rank, worker.folder);
  workers_life_ = {epoch_, program_.cwd, Clock::now(), OutOfMemoryKills()};
  log_.Write("epoch " + std::to_string(epoch_) + ": starting " + std::to_string(plan->slots) +
             " of " + std::to_string(plan->assignment.world_size()) + " ranks from rank " +
             std::to_string(plan->assignment.first_rank()) + ", MASTER_ADDR " +
             plan->assignment.master_addr() + ", MASTER_PORT " +
             std::to_string(plan->assignment.master_port()));
  pb::KeeperRequest request;
  *request.mutable_spawn() = *std::move(specs);
  SendToKeeper(request);
}

Result<WorkerPlan> NodeAgent::PlanWorkers(const pb::Assignment& assignment) {
  WorkerPlan plan;
  plan.job_id = prepare_.job_id();
  plan.epoch = epoch_;
  plan.assignment = assignment;
  plan.slots = own_node().slots();
  plan.device = prepare_.device();
  plan.use_cuda = run_.use_cuda();
  plan.rendezvous_address = link_->address();
  plan.network_interface = prepare_.network_interface();
  plan.cores = static_cast<int>(std::thread::hardware_concurrency());
  plan.max_restarts = static_cast<int>(prepare_.policy().max_restarts());
  plan.node_name = node_name();
  plan.options = prepare_.ranks();
  // Several nodes of one machine share its GPUs.
  const uint32_t first_device = prepare_.local() ? assignment.first_rank() : 0;
  plan.devices_given = !prepare_.devices().empty() || (run_.use_cuda() && first_device > 0);
  plan.devices = DevicesOf(prepare_.devices(), FindVariable(environment_, "CUDA_VISIBLE_DEVICES"),
                           first_device, plan.slots);
  DSL_TRY_ASSIGN(plan.bindings,
                 BindRanks(assignment.first_rank(), assignment.world_size(), plan.devices));
  const bool binds_memory = std::ranges::any_of(
      plan.bindings, [](const RankBinding& binding) { return !binding.memory_nodes.empty(); });
  if (binds_memory && !MayBindMemory()) {
    Notify(node_name() +
           ": ranks are bound to cores but not to memory, which the kernel does not "
           "allow there (a container needs CAP_SYS_NICE for it)");
    for (RankBinding& binding : plan.bindings) binding.memory_nodes.clear();
  }
  return plan;
}

Result<std::vector<RankBinding>> NodeAgent::BindRanks(
    uint32_t first_rank, uint32_t world_size, const std::vector<std::string>& devices) const {
  BindingRequest request;
  request.bind = prepare_.ranks().bind();
  if (request.bind == pb::RankOptions::NONE) return std::vector<RankBinding>();
  const auto refused = [&](const std::string& why) {
    return Error{ExitCode::kUsage, node_name() + ": " + why};
  };
  if (request.bind == pb::RankOptions::CORES && FindVariable(environment_, "KMP_AFFINITY")) {
    return refused(
        "--bind_cores_to_rank: KMP_AFFINITY is set there, which binds threads to other "
        "cores; unset it");
  }
  const uint32_t slots = own_node().slots();
  const bool beside_gpus = request.bind != pb::RankOptions::CORES && run_.use_cuda();
  if (beside_gpus) {
    const Result<std::vector<int>> nodes = GpuNodesOf(devices, ReadGpuPlaces(""));
    if (!nodes.ok()) return refused(nodes.error().message);
    if (nodes->size() < slots) {
      return refused("--numa_binding: " + std::to_string(slots) + " ranks have only " +
                     std::to_string(nodes->size()) + " GPUs in CUDA_VISIBLE_DEVICES");
    }
    request.gpu_nodes = *nodes;
  }
  // Several nodes of one machine share its cores.
  const bool all_are_here = prepare_.local() && !beside_gpus;
  request.cores.assign(prepare_.ranks().cores().begin(), prepare_.ranks().cores().end());
  request.ranks = static_cast<int>(all_are_here ? world_size : slots);
  Result<std::vector<RankBinding>> bindings =
      DecideBinding(ReadCpuTopology("", UsableCpus()), request);
  if (!bindings.ok()) return refused(bindings.error().message);
  if (all_are_here) {
    const auto first = bindings->begin() + first_rank;
    bindings = std::vector<RankBinding>(first, first + slots);
  }
  return bindings;
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
  events_.FollowRank(workers_.epoch(), worker->rank, worker->local_rank, worker->folder);
  if (filtered_log_) filtered_log_->FollowRank(worker->rank, worker->local_rank, worker->folder);
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

}  // namespace dslaunch
