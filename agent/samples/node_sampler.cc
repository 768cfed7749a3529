#include "agent/samples/node_sampler.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "agent/samples/device_samples.h"
#include "agent/samples/last_line.h"
#include "agent/samples/machine_sample.h"
#include "agent/signs/rank_signs.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

uint64_t SizeOf(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

void SetUse(const RankSigns& signs, pb::RankSample& sample) {
  sample.set_readable(true);
  sample.set_cpu_ms(signs.own_cpu_ms + signs.child_cpu_ms);
  sample.set_memory_bytes(signs.use.memory_bytes);
  sample.set_peer_sent_bytes(signs.use.peer_sent_bytes);
  sample.set_peer_received_bytes(signs.use.peer_received_bytes);
  sample.set_disk_read_bytes(signs.use.disk_read_bytes);
  sample.set_disk_written_bytes(signs.use.disk_written_bytes);
}

void SetProgress(const AttemptWorker& worker, Clock::time_point now, pb::RankSample& sample) {
  if (const auto progress = worker.progress.Report(worker.rank, now)) {
    sample.set_step(progress->step());
    sample.set_step_age_us(progress->since_us());
    sample.set_median_step_us(progress->median_step_us());
    sample.set_median_compute_us(progress->median_compute_us());
  }
  if (const auto wait = worker.progress.Wait(now)) {
    sample.set_exchange(SanitizeForTerminal(wait->exchange));
    sample.set_exchange_ms(
        static_cast<uint64_t>(std::max<milliseconds::rep>(0, wait->lasts.count())));
  }
}

}  // namespace

NodeSampler::NodeSampler(asio::io_context& loop, std::function<const AttemptWorkers&()> ranks,
                         std::function<void(pb::NodeSample)> emit, DeviceWatch::Find find)
    : ranks_(std::move(ranks)),
      emit_(std::move(emit)),
      timer_(loop),
      devices_(loop, std::move(find)) {}

void NodeSampler::Want(const pb::SampleRequest& wanted) {
  const milliseconds every = wanted.every_ms() == 0
                                 ? milliseconds(0)
                                 : std::max(kShortestInterval, milliseconds(wanted.every_ms()));
  last_lines_ = wanted.last_lines();
  if (std::exchange(every_, every) == every) return;
  if (every_.count() == 0) {
    timer_.cancel();
    devices_.Stop();
    return;
  }
  Hasten();
}

void NodeSampler::Hasten() {
  if (every_.count() > 0) Arm(milliseconds(0));
}

void NodeSampler::Arm(milliseconds after) {
  timer_.expires_after(after);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error && every_.count() > 0) Turn();
  });
}

void NodeSampler::Turn() {
  const Clock::time_point now = Clock::now();
  devices_.Turn(every_, now);
  emit_(Take(now));
  Arm(every_);
}

pb::NodeSample NodeSampler::Take(Clock::time_point now) {
  const AttemptWorkers& ranks = ranks_();
  pb::NodeSample sample;
  sample.set_attempt(ranks.attempt());
  sample.set_clock_us(static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count()));
  *sample.mutable_machine() = ReadMachineSample();
  const std::vector<pb::DeviceSample> devices = devices_.Devices(now);
  sample.mutable_devices()->Add(devices.begin(), devices.end());
  sample.set_device_trouble(devices_.trouble());

  std::vector<RankProcess> processes;
  for (const AttemptWorker& worker : ranks.all())
    processes.push_back({worker.ended ? 0 : worker.pid, worker.folder});
  const std::vector<std::optional<RankSigns>> signs =
      ReadRankSigns(processes, static_cast<int>(ranks.assignment().master_port()));
  for (size_t i = 0; i < ranks.all().size(); ++i) {
    const AttemptWorker& worker = ranks.all()[i];
    pb::RankSample& rank = *sample.add_ranks();
    rank.set_rank(worker.rank);
    rank.set_local_rank(worker.local_rank);
    rank.set_running(worker.pid > 0 && !worker.ended);
    rank.set_stdout_bytes(SizeOf(worker.folder + "/stdout.log"));
    rank.set_stderr_bytes(SizeOf(worker.folder + "/stderr.log"));
    if (signs[i]) SetUse(*signs[i], rank);
    SetProgress(worker, now, rank);
    if (last_lines_) rank.set_last_line(ReadLastLine(worker.folder));
    if (i >= devices_of_ranks_.size()) continue;
    for (const uint32_t device : DevicesNamed(devices_of_ranks_[i], devices))
      rank.add_devices(device);
  }
  return sample;
}

}  // namespace dslaunch
