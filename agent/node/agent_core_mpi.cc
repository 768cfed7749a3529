// A node's ranks that use MPI. Every rank of the job has to call MPI_Init once one has, and
// MPI_Finalize before it ends, as mpirun demands: a rank that leaves either out and ends with 0 is
// what the others would wait for without end.
#include <algorithm>
#include <utility>

#include "agent/node/agent_core.h"
#include "base/count.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kMpiAnswerWithin(5'000);
constexpr milliseconds kMpiInitWithin(60'000);  // after the first rank's, without a notice

constexpr char kNotInitialized[] =
    "it ended with 0 without MPI_Init, which counts as exit code 1, since another rank has called "
    "it; --mpi none makes each rank a world of its own";
constexpr char kNotFinalized[] =
    "it ended with 0 without MPI_Finalize, which counts as exit code 1";

}  // namespace

// Another node's ranks use MPI.
void AgentCore::OnMpiBegun(Clock::time_point now) {
  if (phase_ != Phase::kWorking || mpi_begun_at_) return;
  Do(agent_action::StartMpiServer{});
  BeginMpi(now);
}

void AgentCore::BeginMpi(Clock::time_point now) {
  mpi_begun_at_ = now;
  Log("ranks use MPI");
  const auto ended = std::ranges::find_if(workers_.all(), [](const AttemptWorker& worker) {
    return worker.ended && !worker.loss_tolerated;
  });
  if (ended == workers_.all().end()) return;
  pb::WorkerEnded event;
  event.set_attempt(attempt_);
  event.set_rank(ended->rank);
  event.set_local_rank(ended->local_rank);
  event.set_exit_code(1);
  event.set_evidence(kNotInitialized);
  pb::AgentMessage message;
  *message.mutable_worker_failed()->mutable_cause() = CauseOfFailure(event, prepare_.node_index());
  SendToRendezvous(std::move(message));
}

AgentActions AgentCore::OnMpiFailed(const std::string& why) {
  if (phase_ != Phase::kWorking) return {};
  StopJob(OwnCause(pb::Cause::INTERNAL, ExitCode::kUnavailable, node_name() + ": " + why));
  return Take();
}

AgentActions AgentCore::OnMpiAbort(const pb::PmixAbort& aborted) {
  const uint32_t rank = aborted.rank();
  const AttemptWorker* const worker = workers_.FindRank(rank);
  if (phase_ != Phase::kWorking || worker == nullptr) return {};
  if (aborted.waits()) {
    mpi_aborts_.emplace(rank, aborted.code());
    KillWorker(*worker);
    return Take();
  }
  if ((aborted.code() & 0xff) != 0) return {};
  pb::Cause cause =
      OwnCause(pb::Cause::INTERNAL, ExitCode::kInternal,
               "rank " + std::to_string(rank) + " (" + node_name() + ", local rank " +
                   std::to_string(worker->local_rank) + ") called MPI_Abort with code 0");
  cause.set_exit_code(1);
  cause.set_attempt(attempt_);
  cause.set_rank(static_cast<int>(rank));
  cause.set_local_rank(static_cast<int>(worker->local_rank));
  StopJob(cause);
  return Take();
}

// What it did last may be known to the server alone.
bool AgentCore::AsksMpiServer(const pb::WorkerExited& exited) const {
  const AttemptWorker* const worker = workers_.Find(exited.local_rank());
  return worker != nullptr && phase_ == Phase::kWorking && mpi_begun_at_ && !exited.stopping() &&
         exited.signal() == 0 && exited.exit_code() == 0 && !mpi_aborts_.contains(worker->rank);
}

AgentActions AgentCore::OnMpiRank(const pb::PmixRank& known, Clock::time_point now) {
  if (known.state() != pb::PmixRank::NOT_JOINED) mpi_joined_.insert(known.local_rank());
  if (phase_ == Phase::kWorking && !mpi_begun_at_ && !mpi_joined_.empty()) {
    if (nodes_.size() > 1) {
      pb::AgentMessage message;
      message.mutable_mpi_begun();
      SendToRendezvous(std::move(message));
    }
    BeginMpi(now);
  }
  const auto held = held_workers_.find(known.local_rank());
  const AttemptWorker* const worker = workers_.Find(known.local_rank());
  if (!known.is_answer() || held == held_workers_.end() || worker == nullptr) return Take();
  if (known.state() != pb::PmixRank::FINALIZED) {
    mpi_faults_[worker->rank] =
        known.state() == pb::PmixRank::JOINED ? kNotFinalized : kNotInitialized;
  }
  const HeldWorker ended = std::exchange(held->second, {});
  held_workers_.erase(held);
  EndWorker(ended.exited, ended.noticed);
  return Take();
}

// The server gives no answer that counts.
void AgentCore::EndHeldWorkers() {
  for (const auto& [local_rank, held] : std::exchange(held_workers_, {}))
    EndWorker(held.exited, held.noticed);
}

void AgentCore::CheckMpi(Clock::time_point now) {
  const bool is_late = std::ranges::any_of(held_workers_, [now](const auto& held) {
    return now - held.second.noticed >= kMpiAnswerWithin;
  });
  if (is_late) EndHeldWorkers();
  if (phase_ != Phase::kWorking || !mpi_begun_at_ || late_for_mpi_is_reported_ ||
      now - *mpi_begun_at_ < kMpiInitWithin)
    return;
  late_for_mpi_is_reported_ = true;
  std::vector<std::string> late;
  for (const AttemptWorker& worker : workers_.all()) {
    if (!worker.ended && !mpi_joined_.contains(worker.local_rank))
      late.push_back(std::to_string(worker.rank));
  }
  if (late.empty()) return;
  Notify(node_name() + ": " + (late.size() == 1 ? "rank " : "ranks ") + NameList(late, ", ") +
         (late.size() == 1 ? " has" : " have") +
         " not called MPI_Init, for which other ranks have waited a minute; --mpi none makes each "
         "rank a world of its own");
}

}  // namespace dslaunch
