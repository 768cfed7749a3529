#include "agent/samples/device_watch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <asio/buffer.hpp>
#include <csignal>
#include <utility>

#include "agent/host/program.h"
#include "agent/samples/device_samples.h"
#include "base/errno_text.h"
#include "base/os/child_watch.h"
#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr milliseconds kAnotherStart(30'000);
constexpr milliseconds kSilence(15'000);  // besides two intervals; a node's first answer takes long
constexpr milliseconds kEndsWithin(50);   // limit for an exit, which usually takes a millisecond
constexpr size_t kMaxLineBytes = 1024;    // limit of a line; the rest of a longer line is ignored
constexpr size_t kMaxDevices = 256;

}  // namespace

struct DeviceWatch::Output {
  Output(asio::io_context& loop, int fd) : reader(loop, fd) {}
  asio::posix::stream_descriptor reader;
  std::array<char, 4096> chunk = {};
  std::string line;
};

void DeviceWatch::Turn(milliseconds every, Clock::time_point now) {
  Reap();
  // The interval is an argument of the program, so a new interval needs a new process.
  if (output_ && every != every_) {
    Kill();
    not_before_.reset();
  }
  every_ = every;
  if (output_ && now - heard_at_ > kSilence + 2 * every_) {
    trouble_ = "nvidia-smi: the driver does not answer";
    not_before_ = now + kAnotherStart;
    Kill();
  }
  if (!output_ && (!not_before_ || now >= *not_before_)) Start(now);
}

void DeviceWatch::Stop() {
  Kill();
  Reap();
  not_before_.reset();
  devices_.clear();
  trouble_.clear();
}

std::vector<pb::DeviceSample> DeviceWatch::Devices(Clock::time_point now) const {
  std::vector<pb::DeviceSample> devices;
  for (const Seen& seen : devices_) {
    pb::DeviceSample& device = devices.emplace_back(seen.device);
    device.set_age_ms(static_cast<uint64_t>(
        std::chrono::duration_cast<milliseconds>(std::max(now - seen.at, Clock::duration(0)))
            .count()));
  }
  return devices;
}

void DeviceWatch::Start(Clock::time_point now) {
  not_before_ = now + kAnotherStart;
  const std::string program = find_();
  if (program.empty()) return;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  // Programs expect that writing to standard output blocks, so the program's end of the pipe is
  // made blocking.
  ::fcntl(writer.get(), F_SETFL, 0);
  SpawnSpec spec;
  spec.executable = program;
  spec.argv = {program, "--query-gpu=" + DeviceQuery(query_), "--format=csv,noheader,nounits",
               "--loop-ms=" + std::to_string(every_.count())};
  spec.env = NodeEnvironment();
  spec.cwd = "/";
  spec.stdout_fd = writer.get();
  spec.stderr_fd = writer.get();
  spec.own_group = true;
  spec.parent_death_signal = SIGKILL;
  spec.no_new_privileges = true;
  const SpawnResult spawned = Spawn(spec);
  if (spawned.pid < 0) {
    trouble_ = "nvidia-smi: " + ErrnoText(spawned.failure.error_number);
    return;
  }
  pid_ = spawned.pid;
  heard_at_ = now;
  last_words_.clear();
  output_ = std::make_shared<Output>(loop_, reader.Release());
  Read(output_);
}

void DeviceWatch::Read(std::shared_ptr<Output> output) {
  Output& from = *output;
  from.reader.async_read_some(
      asio::buffer(from.chunk),
      [this, output = std::move(output)](const asio::error_code& error, size_t size) {
        // A cancelled operation may mean that this object was destroyed, so no member is used.
        if (error == asio::error::operation_aborted) return;
        if (output != output_) return;
        if (error) return OnEnd();
        for (const char byte : std::string_view(output->chunk.data(), size)) {
          if (byte != '\n') {
            if (output->line.size() < kMaxLineBytes) output->line += byte;
            continue;
          }
          OnLine(std::exchange(output->line, {}));
        }
        Read(output);
      });
}

void DeviceWatch::OnLine(std::string_view line) {
  std::optional<pb::DeviceSample> device = ParseDeviceLine(line, query_);
  if (!device) {
    if (!line.empty()) last_words_ = line;
    return;
  }
  heard_at_ = Clock::now();
  trouble_.clear();
  const auto same = std::ranges::find_if(
      devices_, [&](const Seen& seen) { return seen.device.uuid() == device->uuid(); });
  if (same != devices_.end())
    *same = {*std::move(device), heard_at_};
  else if (devices_.size() < kMaxDevices)
    devices_.push_back({*std::move(device), heard_at_});
}

// Starts the program again with another query, or sets `trouble_`. The program exits by itself only
// if it cannot work.
void DeviceWatch::OnEnd() {
  Kill();
  if (IsUnknownField(last_words_) && query_ + 1 < kDeviceQueries) {
    ++query_;
    not_before_.reset();
    return Start(Clock::now());
  }
  trouble_ = "nvidia-smi: " + (last_words_.empty() ? "it ended without a word"
                                                   : SanitizeForTerminal(Truncate(last_words_)));
}

void DeviceWatch::Kill() {
  if (!output_) return;
  output_->reader.close();
  output_.reset();
  ::kill(-pid_, SIGKILL);
  ChildWatch(pid_).AwaitEnd(Deadline::After(kEndsWithin));
  unreaped_.push_back(std::exchange(pid_, 0));
  Reap();
}

// Reaps those killed processes that have exited. A process in a call of a broken driver exits only
// when that call returns, which may never happen.
void DeviceWatch::Reap() {
  std::erase_if(unreaped_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

}  // namespace dslaunch
