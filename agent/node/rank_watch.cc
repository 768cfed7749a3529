#include "agent/node/rank_watch.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "agent/flight/flight_requests.h"
#include "agent/signs/rank_signs.h"

namespace dslaunch {
namespace {

constexpr int kLooksInLimit = 12;
constexpr milliseconds kShortestInterval(100);
constexpr int kSpreadPercent = 30;  // looks are not in step with what a program repeats

}  // namespace

milliseconds LookInterval(milliseconds setup, milliseconds hang) {
  if (setup.count() == 0 && hang.count() == 0) return milliseconds(0);
  const milliseconds shorter = setup.count() == 0  ? hang
                               : hang.count() == 0 ? setup
                                                   : std::min(setup, hang);
  return std::max(kShortestInterval, shorter / kLooksInLimit);
}

RankWatch::RankWatch(asio::io_context& loop, NodeOutput& out, StackRequests& stacks)
    : out_(out), stacks_(stacks), timer_(loop), random_(std::random_device{}()) {}

void RankWatch::Begin() {
  ranks_.clear();
  signatures_.clear();
  const AttemptWorkers& ranks = out_.core().workers().ranks();
  const pb::Policy& policy = out_.core().job().spec().policy();
  interval_ =
      LookInterval(milliseconds(policy.setup_hang_ms()), milliseconds(policy.standstill_ms()));
  if (interval_.count() == 0 || ranks.assignment().world_size() < 2) {
    timer_.cancel();
    return;
  }
  ranks_.resize(ranks.all().size());
  Arm();
}

std::vector<pb::Stillness> RankWatch::Stillness() {
  const std::vector<AttemptWorker>& workers = out_.core().workers().ranks().all();
  std::vector<pb::Stillness> reports;
  for (size_t i = 0; i < ranks_.size() && i < workers.size(); ++i) {
    // Without a report of a rank that failed, the job is not judged.
    if (workers[i].ended && !workers[i].succeeded) continue;
    if (workers[i].ended) ranks_[i].OnEnded();
    if (auto report = ranks_[i].Report(workers[i].rank)) reports.push_back(*std::move(report));
  }
  return reports;
}

void RankWatch::Arm() {
  std::uniform_int_distribution<int> percent(100 - kSpreadPercent, 100 + kSpreadPercent);
  timer_.expires_after(interval_ * percent(random_) / 100);
  timer_.async_wait([this](const asio::error_code& error) {
    if (error || !out_.core().workers().is_working()) return;
    Look();
    Arm();
  });
}

void RankWatch::Look() {
  const AttemptWorkers& workers = out_.core().workers().ranks();
  std::vector<RankProcess> processes;
  for (const AttemptWorker& worker : workers.all())
    processes.push_back({worker.ended ? 0 : worker.pid, worker.folder,
                         FlightFilesIn(worker.folder, worker.rank).dump});
  std::vector<std::optional<RankSigns>> signs =
      ReadRankSigns(processes, static_cast<int>(workers.assignment().master_port()));
  std::vector<RankPlace> with_gpu;
  for (RankPlace& place : out_.core().workers().ranks().RunningRanks(Clock::now())) {
    if (place.local_rank >= signs.size() || !signs[place.local_rank]) continue;
    RankSigns& rank = *signs[place.local_rank];
    if (!rank.has_gpu) continue;
    if (const auto read = signatures_.find(place.local_rank); read != signatures_.end())
      rank.signature = read->second;
    with_gpu.push_back(std::move(place));
  }
  for (size_t i = 0; i < signs.size() && i < ranks_.size(); ++i) {
    if (!workers.all()[i].ended) ranks_[i].OnLook(signs[i], interval_, Clock::now());
  }
  ReadSignatures(std::move(with_gpu));
}

void RankWatch::ReadSignatures(std::vector<RankPlace> places) {
  signatures_.clear();
  if (places.empty()) return;
  std::vector<uint32_t> local_ranks;
  for (const RankPlace& place : places) local_ranks.push_back(place.local_rank);
  stacks_.Begin(std::move(places), /*native=*/false,
                [this, local_ranks](const std::vector<pb::RankStacks>& ranks) {
                  for (size_t i = 0; i < ranks.size() && i < local_ranks.size(); ++i)
                    signatures_[local_ranks[i]] = ranks[i].signature();
                });
}

}  // namespace dslaunch
