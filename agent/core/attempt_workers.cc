#include "agent/core/attempt_workers.h"

#include <algorithm>
#include <utility>

#include "base/exit_code.h"

namespace dslaunch {

AttemptWorkers::AttemptWorkers(uint64_t attempt, pb::Assignment assignment,
                               const pb::SpawnWorkers& specs)
    : attempt_(attempt), assignment_(std::move(assignment)), share_cores_(specs.share_cores()) {
  for (const pb::WorkerSpec& spec : specs.workers()) {
    AttemptWorker worker;
    worker.rank = spec.rank();
    worker.local_rank = spec.local_rank();
    worker.folder = spec.stdout_path().substr(0, spec.stdout_path().rfind('/'));
    workers_.push_back(std::move(worker));
  }
}

const AttemptWorker* AttemptWorkers::Find(uint32_t local_rank) const {
  return local_rank < workers_.size() ? &workers_[local_rank] : nullptr;
}

const AttemptWorker* AttemptWorkers::FindRank(uint32_t rank) const {
  const auto found = std::ranges::find(workers_, rank, &AttemptWorker::rank);
  return found == workers_.end() ? nullptr : &*found;
}

bool AttemptWorkers::OnSpawned(uint32_t local_rank, pid_t pid) {
  if (local_rank >= workers_.size() || workers_[local_rank].pid != 0) return false;
  workers_[local_rank].pid = pid;
  return ++spawned_ == workers_.size();
}

bool AttemptWorkers::OnEnded(uint32_t local_rank, std::optional<int> exit_code) {
  if (local_rank >= workers_.size() || std::exchange(workers_[local_rank].ended, true))
    return false;
  workers_[local_rank].progress.OnEnded();
  const bool well = exit_code == ToInt(ExitCode::kOk);
  const bool tolerated = !exit_code && workers_[local_rank].loss_tolerated;
  if (well) ++ended_well_;
  workers_[local_rank].succeeded = well;
  if (tolerated) ++tolerated_;
  if (exit_code == ToInt(ExitCode::kPreempted)) ++saved_;
  return (well || tolerated) && ended_well_ + tolerated_ == workers_.size();
}

bool AttemptWorkers::AllEnded() const {
  return !workers_.empty() && std::ranges::all_of(workers_, &AttemptWorker::ended);
}

bool AttemptWorkers::OnReportedLost(uint32_t rank) {
  return rank < assignment_.world_size() && reported_lost_.insert(rank).second;
}

bool AttemptWorkers::OnGivenUp(uint32_t local_rank) {
  return local_rank < workers_.size() && !std::exchange(workers_[local_rank].given_up, true);
}

void AttemptWorkers::OnStatus(uint32_t local_rank, const StatusLine& line, Clock::time_point now) {
  if (local_rank >= workers_.size()) return;
  workers_[local_rank].progress.OnStatus(line, now);
  if (line.loss_tolerated) workers_[local_rank].loss_tolerated = true;
}

std::vector<pb::RankProgress> AttemptWorkers::Progress(Clock::time_point now) const {
  std::vector<pb::RankProgress> progress;
  for (const AttemptWorker& worker : workers_) {
    if (auto report = worker.progress.Report(worker.rank, now)) {
      report->set_shares_cores(share_cores_);
      progress.push_back(*std::move(report));
    }
  }
  return progress;
}

pb::Started AttemptWorkers::Started() const {
  pb::Started started;
  started.set_attempt(attempt_);
  started.set_first_rank(assignment_.first_rank());
  started.set_world_size(assignment_.world_size());
  for (const AttemptWorker& worker : workers_) started.add_pids(worker.pid);
  started.set_master_addr(assignment_.master_addr());
  started.set_master_port(assignment_.master_port());
  *started.mutable_members() = assignment_.members();
  started.set_restart_count(assignment_.restart_count());
  return started;
}

std::vector<RankPlace> AttemptWorkers::RunningRanks(Clock::time_point now) const {
  std::vector<RankPlace> places;
  for (const AttemptWorker& worker : workers_) {
    if (worker.ended || worker.pid == 0) continue;
    const std::optional<RankWait> wait = worker.progress.Wait(now);
    places.push_back({worker.rank, worker.local_rank, wait ? wait->exchange : "",
                      wait ? wait->lasts : milliseconds(0), worker.folder});
  }
  return places;
}

std::vector<pid_t> AttemptWorkers::RunningPids() const {
  std::vector<pid_t> pids;
  for (const AttemptWorker& worker : workers_) {
    if (worker.pid > 0 && !worker.ended) pids.push_back(worker.pid);
  }
  return pids;
}

}  // namespace dslaunch
