#include "agent/core/mpi_core.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "base/count.h"

namespace dslaunch {
namespace {

constexpr milliseconds kAnswerWithin(5'000);
constexpr milliseconds kInitWithin(60'000);  // from the first rank's call to a notice

constexpr char kNotInitialized[] =
    "it ended with 0 without MPI_Init, which counts as exit code 1, since another rank has called "
    "it; --mpi none makes each rank a world of its own";
constexpr char kNotFinalized[] =
    "it ended with 0 without MPI_Finalize, which counts as exit code 1";

}  // namespace

void MpiCore::OnBegun(Clock::time_point now) {
  if (!workers_.is_working() || attempt_.begun_at) return;
  out_.Do(agent_action::StartMpiServer{});
  Begin(now);
}

void MpiCore::Begin(Clock::time_point now) {
  attempt_.begun_at = now;
  out_.Log("ranks use MPI");
  const std::vector<AttemptWorker>& ranks = workers_.ranks().all();
  const auto ended = std::ranges::find_if(
      ranks, [](const AttemptWorker& worker) { return worker.ended && !worker.loss_tolerated; });
  if (ended == ranks.end()) return;
  pb::WorkerEnded event;
  event.set_attempt(workers_.attempt());
  event.set_rank(ended->rank);
  event.set_local_rank(ended->local_rank);
  event.set_exit_code(1);
  event.set_evidence(kNotInitialized);
  pb::AgentMessage message;
  *message.mutable_worker_failed()->mutable_cause() = CauseOfFailure(event, job_.node_index());
  out_.SendToRendezvous(std::move(message));
}

void MpiCore::OnFailed(const std::string& why) {
  if (!workers_.is_working()) return;
  out_.StopJob(
      job_.Cause(pb::Cause::INTERNAL, ExitCode::kUnavailable, job_.node_name() + ": " + why));
}

void MpiCore::OnAbort(const pb::PmixAbort& aborted) {
  const uint32_t rank = aborted.rank();
  const AttemptWorker* const worker = workers_.ranks().FindRank(rank);
  if (!workers_.is_working() || worker == nullptr) return;
  if (aborted.waits()) {
    attempt_.aborts.emplace(rank, aborted.code());
    return out_.SendToSupervisor(SignalWorker(worker->local_rank, SIGKILL));
  }
  if ((aborted.code() & 0xff) != 0) return;
  pb::Cause cause =
      job_.Cause(pb::Cause::INTERNAL, ExitCode::kInternal,
                 "rank " + std::to_string(rank) + " (" + job_.node_name() + ", local rank " +
                     std::to_string(worker->local_rank) + ") called MPI_Abort with code 0");
  cause.set_exit_code(1);
  cause.set_attempt(workers_.attempt());
  cause.set_rank(static_cast<int>(rank));
  cause.set_local_rank(static_cast<int>(worker->local_rank));
  out_.StopJob(cause);
}

bool MpiCore::Holds(const pb::WorkerExited& exited, Clock::time_point now) {
  const AttemptWorker* const worker = workers_.ranks().Find(exited.local_rank());
  if (worker == nullptr || !workers_.is_working() || !attempt_.begun_at || exited.stopping() ||
      exited.signal() != 0 || exited.exit_code() != 0 || attempt_.aborts.contains(worker->rank))
    return false;
  attempt_.held[exited.local_rank()] = {exited, now};
  out_.Do(agent_action::AskMpiServer{exited.local_rank()});
  return true;
}

void MpiCore::OnRank(const pb::PmixRank& known, Clock::time_point now) {
  if (known.state() != pb::PmixRank::NOT_JOINED) attempt_.joined.insert(known.local_rank());
  if (workers_.is_working() && !attempt_.begun_at && !attempt_.joined.empty()) {
    if (job_.nodes().size() > 1) {
      pb::AgentMessage message;
      message.mutable_mpi_begun();
      out_.SendToRendezvous(std::move(message));
    }
    Begin(now);
  }
  const auto held = attempt_.held.find(known.local_rank());
  const AttemptWorker* const worker = workers_.ranks().Find(known.local_rank());
  if (!known.is_answer() || held == attempt_.held.end() || worker == nullptr) return;
  if (known.state() != pb::PmixRank::FINALIZED) {
    attempt_.faults[worker->rank] =
        known.state() == pb::PmixRank::JOINED ? kNotFinalized : kNotInitialized;
  }
  out_.Ask(agent_request::EndRank{held->second.exited, held->second.noticed});
  attempt_.held.erase(held);
}

void MpiCore::EndHeld() {
  for (const auto& [local_rank, held] : std::exchange(attempt_.held, {}))
    out_.Ask(agent_request::EndRank{held.exited, held.noticed});
}

void MpiCore::OnTick(Clock::time_point now) {
  const bool is_late = std::ranges::any_of(attempt_.held, [now](const auto& held) {
    return now - held.second.noticed >= kAnswerWithin;
  });
  if (is_late) return EndHeld();
  if (!workers_.is_working() || !attempt_.begun_at || attempt_.late_is_reported ||
      now - *attempt_.begun_at < kInitWithin)
    return;
  attempt_.late_is_reported = true;
  ReportLate();
}

void MpiCore::ReportLate() {
  std::vector<std::string> late;
  for (const AttemptWorker& worker : workers_.ranks().all()) {
    if (!worker.ended && !attempt_.joined.contains(worker.local_rank))
      late.push_back(std::to_string(worker.rank));
  }
  if (late.empty()) return;
  out_.Notify(job_.node_name() + ": " + (late.size() == 1 ? "rank " : "ranks ") +
              NameList(late, ", ") + (late.size() == 1 ? " has" : " have") +
              " not called MPI_Init, for which other ranks have waited a minute; --mpi none makes "
              "each rank a world of its own");
}

void MpiCore::Amend(pb::WorkerExited& exited) const {
  const AttemptWorker* const worker = workers_.ranks().Find(exited.local_rank());
  if (worker == nullptr) return;
  if (const auto aborted = attempt_.aborts.find(worker->rank); aborted != attempt_.aborts.end()) {
    exited.set_exit_code(std::max(1, aborted->second & 0xff));
    exited.set_signal(0);
  }
  if (attempt_.faults.contains(worker->rank)) exited.set_exit_code(1);
}

void MpiCore::Amend(pb::WorkerEnded& ended) const {
  if (const auto aborted = attempt_.aborts.find(ended.rank());
      aborted != attempt_.aborts.end() && ended.evidence().empty())
    ended.set_evidence("it called MPI_Abort with code " + std::to_string(aborted->second));
  if (const auto fault = attempt_.faults.find(ended.rank()); fault != attempt_.faults.end()) {
    ended.set_victim(false);
    ended.set_evidence(fault->second);
  }
}

}  // namespace dslaunch
