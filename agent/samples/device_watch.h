// Runs `nvidia-smi --loop-ms` while the states of this node's GPUs are requested. Each start of the
// program takes a second of CPU time on a node with eight GPUs, so one process per node prints all
// devices repeatedly.
#pragma once

#include <sys/types.h>

#include <array>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "proto/sample.pb.h"

namespace dslaunch {

// Stores the newest states of this node's GPUs. Used on the loop's thread, which must outlive the
// process, because the kernel kills the process when that thread ends.
class DeviceWatch {
 public:
  // Returns the path of nvidia-smi; empty if the node does not have it.
  using Find = std::function<std::string()>;

  DeviceWatch(asio::io_context& loop, Find find) : loop_(loop), find_(std::move(find)) {}
  ~DeviceWatch() { Stop(); }
  DeviceWatch(const DeviceWatch&) = delete;

  // Requests the states every `every`. Starts the program if it is not running, and starts it again
  // 30 s after it exited or stopped printing. Precondition: called repeatedly, at least once in
  // `every`.
  void Turn(milliseconds every, Clock::time_point now);
  // Ends the program and stops the requests.
  void Stop();

  // Returns the newest state of each device, in the order in which the program prints them.
  std::vector<pb::DeviceSample> Devices(Clock::time_point now) const;
  // Returns the reason why the states are unknown, for users. Empty if they are known, if the node
  // does not have the program, or if the program has only just started.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Seen {
    pb::DeviceSample device;
    Clock::time_point at;
  };
  struct Output;

  void Start(Clock::time_point now);
  void Read(std::shared_ptr<Output> output);
  void OnLine(std::string_view line);
  void OnEnd();
  // Kills the process, and reaps it if the kernel lets it exit at once.
  void Kill();
  void Reap();

  asio::io_context& loop_;
  const Find find_;
  milliseconds every_{0};
  size_t query_ = 0;
  std::shared_ptr<Output> output_;  // pipe from the process; nullptr while no process runs
  pid_t pid_ = 0;
  std::vector<pid_t> unreaped_;
  std::optional<Clock::time_point> not_before_;  // earliest time of the program's next start
  Clock::time_point heard_at_;  // time of the start or of the newest line about a device
  std::string last_words_;      // last line of output that is not about a device
  std::string trouble_;
  std::vector<Seen> devices_;
};

}  // namespace dslaunch
