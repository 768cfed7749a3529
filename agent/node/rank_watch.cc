#include "agent/node/rank_watch.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "agent/flight/flight_requests.h"
#include "agent/flight/ras_report.h"
#include "agent/signs/rank_signs.h"
#include "rendezvous/standstill.h"

namespace dslaunch {
namespace {

constexpr int kLooksInLimit = 12;
constexpr milliseconds kShortestInterval(100);
// Random variation of the interval in percent, so that looks are not synchronous with the program.
constexpr int kSpreadPercent = 30;

}  // namespace

milliseconds LookInterval(milliseconds setup, milliseconds hang) {
  if (setup.count() == 0 && hang.count() == 0) return milliseconds(0);
  const milliseconds shorter = setup.count() == 0  ? hang
                               : hang.count() == 0 ? setup
                                                   : std::min(setup, hang);
  return std::max(kShortestInterval, shorter / kLooksInLimit);
}

std::optional<milliseconds> NextMark(const std::vector<pb::Stillness>& ranks, milliseconds setup,
                                     milliseconds hang) {
  using std::chrono::microseconds;
  std::optional<milliseconds> next;
  const auto consider = [&](milliseconds mark, uint64_t reached_us) {
    const auto left = std::chrono::ceil<milliseconds>(mark - ReportedMicroseconds(reached_us));
    if (left.count() > 0) next = std::min(next.value_or(left), left);
  };
  for (const pb::Stillness& rank : ranks) {
    if (rank.ended()) continue;
    for (const milliseconds limit : {setup, hang}) {
      if (limit.count() == 0) continue;
      const milliseconds lead = StandstillLead(limit);
      for (const milliseconds mark : {limit - lead, limit}) {
        consider(mark, rank.still_us());
        consider(mark, rank.only_cpu_us());
      }
      consider(kComputeFactor * limit - lead, rank.only_cpu_us());
    }
  }
  return next;
}

RankWatch::RankWatch(asio::io_context& loop, NodeOutput& out, StackRequests& stacks,
                     const FlightRequests& flights, std::function<void()> report_now)
    : out_(out),
      stacks_(stacks),
      flights_(flights),
      report_now_(std::move(report_now)),
      ras_(loop),
      timer_(loop),
      random_(std::random_device{}()) {}

void RankWatch::Begin() {
  ranks_.clear();
  signatures_.clear();
  exchanges_.clear();
  const AttemptWorkers& ranks = out_.core().workers().ranks();
  const pb::Policy& policy = out_.core().job().spec().policy();
  setup_ = milliseconds(policy.setup_hang_ms());
  hang_ = milliseconds(policy.standstill_ms());
  interval_ = LookInterval(setup_, hang_);
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
    // The job is not judged unless every rank has a report, so a failed rank gets no report.
    if (workers[i].ended && !workers[i].succeeded) continue;
    if (workers[i].ended) ranks_[i].OnEnded();
    if (auto report = ranks_[i].Report(workers[i].rank)) reports.push_back(*std::move(report));
  }
  return reports;
}

void RankWatch::Arm() {
  std::uniform_int_distribution<int> percent(100 - kSpreadPercent, 100 + kSpreadPercent);
  milliseconds delay = interval_ * percent(random_) / 100;
  const std::optional<milliseconds> mark = NextMark(Stillness(), setup_, hang_);
  is_at_mark_ = mark && *mark <= delay;
  if (is_at_mark_) delay = std::max(*mark, kShortestInterval);
  timer_.expires_after(delay);
  timer_.async_wait([this](const asio::error_code& error) {
    if (error || !out_.core().workers().is_working()) return;
    Look();
    if (is_at_mark_) report_now_();
    Arm();
  });
}

void RankWatch::Look() {
  const AttemptWorkers& workers = out_.core().workers().ranks();
  std::vector<RankProcess> processes;
  for (const AttemptWorker& worker : workers.all())
    processes.push_back({worker.ended ? 0 : worker.pid, worker.folder,
                         RasAddressOf(worker.pid).value_or(RasAddress()).port});
  std::vector<std::optional<RankSigns>> signs =
      ReadRankSigns(processes, static_cast<int>(workers.assignment().master_port()));
  for (const auto& [local_rank, digest] : std::exchange(exchanges_, {})) {
    if (local_rank < signs.size() && signs[local_rank]) signs[local_rank]->exchanges = digest;
  }
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
    const AttemptWorker& worker = workers.all()[i];
    if (worker.ended) continue;
    ranks_[i].OnLook(signs[i], interval_, Clock::now(),
                     flights_.WroteSince(worker.rank, looked_at_));
  }
  looked_at_ = Clock::now();
  signatures_.clear();
  ReadSignatures(std::move(with_gpu), StackRequests::Kind::kFrames, signatures_);
  ReadExchanges(signs);
}

void RankWatch::ReadSignatures(std::vector<RankPlace> places, StackRequests::Kind kind,
                               std::map<uint32_t, uint64_t>& signatures) {
  if (places.empty()) return;
  std::vector<uint32_t> local_ranks;
  for (const RankPlace& place : places) local_ranks.push_back(place.local_rank);
  stacks_.Begin(std::move(places), kind,
                [&signatures, local_ranks](const std::vector<pb::RankStacks>& ranks) {
                  for (size_t i = 0; i < ranks.size() && i < local_ranks.size(); ++i)
                    signatures[local_ranks[i]] = ranks[i].signature();
                });
}

void RankWatch::ReadExchanges(const std::vector<std::optional<RankSigns>>& signs) {
  constexpr int kLooksBefore = kLooksInLimit / 2;
  std::vector<RankPlace> places;
  for (RankPlace& place : out_.core().workers().ranks().RunningRanks(Clock::now())) {
    const uint32_t local_rank = place.local_rank;
    if (local_rank >= ranks_.size() || local_rank >= signs.size() || !signs[local_rank]) continue;
    const RankSigns& rank = *signs[local_rank];
    if (ranks_[local_rank].only_cpu() < kLooksBefore * interval_) continue;
    if (rank.has_gpu && place.rank == 0) {
      // One process reports for all ranks of the job, so only the process of rank 0 is asked.
      const pid_t pid = out_.core().workers().ranks().all()[local_rank].pid;
      ras_.Begin(RasAddressOf(pid),
                 [this, local_rank](const std::string& status, const std::string&) {
                   exchanges_[local_rank] = DigestOfOperations(status);
                 });
    }
    if (rank.has_gpu || rank.has_device) continue;
    places.push_back(std::move(place));
  }
  ReadSignatures(std::move(places), StackRequests::Kind::kSharedMemory, exchanges_);
}

}  // namespace dslaunch
