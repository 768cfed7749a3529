// Runs `nvidia-smi --loop-ms` while the states of this node's GPUs are requested. One process per
// node prints all devices again and again, because each start of the program takes a second of CPU
// time on a node with eight GPUs.
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

// Keeps the newest states of this node's GPUs. Used on the loop's thread, which must outlive the
// process: the kernel kills the process when that thread ends.
class DeviceWatch {
 public:
  // Returns the path of nvidia-smi; empty if the node has none.
  using Find = std::function<std::string()>;

  DeviceWatch(asio::io_context& loop, Find find) : loop_(loop), find_(std::move(find)) {}
  ~DeviceWatch() { Stop(); }
  DeviceWatch(const DeviceWatch&) = delete;

  // Requests the states every `every`. Precondition: called again and again, at least as often.
  // Starts the program, and starts it again 30 s after it ended or stopped printing.
  void Turn(milliseconds every, Clock::time_point now);
  // Ends the program.
  void Stop();

  // Returns the newest state of each device, in the program's order.
  std::vector<pb::DeviceSample> Devices(Clock::time_point now) const;
  // Returns why the states are unknown, for users. Empty if they are known, if there is no such
  // program, or if it has only just started.
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
  // Ends the process, and reaps it if the kernel lets it end at once.
  void Kill();
  void Reap();

  asio::io_context& loop_;
  const Find find_;
  milliseconds every_{0};
  size_t query_ = 0;
  std::shared_ptr<Output> output_;  // null while no process runs
  pid_t pid_ = 0;
  std::vector<pid_t> unreaped_;
  std::optional<Clock::time_point> not_before_;  // earliest time of the next start
  Clock::time_point heard_at_;  // time of the start or of the newest line about a device
  std::string last_words_;      // last line that is not about a device
  std::string trouble_;
  std::vector<Seen> devices_;
};

}  // namespace dslaunch
