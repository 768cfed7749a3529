// Takes samples of this node while a receiver of its events requests samples.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <string>
#include <vector>

#include "agent/core/attempt_workers.h"
#include "agent/samples/device_watch.h"
#include "base/deadline.h"
#include "proto/sample.pb.h"

namespace dslaunch {

// Takes samples at the requested interval. Used on the loop's thread.
class NodeSampler {
 public:
  static constexpr milliseconds kShortestInterval{250};

  // `ranks` returns the current ranks, and `emit` receives the samples. Both are called from the
  // loop only. `find` returns the path of nvidia-smi; empty if the node does not have it.
  NodeSampler(asio::io_context& loop, std::function<const AttemptWorkers&()> ranks,
              std::function<void(pb::NodeSample)> emit, DeviceWatch::Find find);

  // Begins to sample as `wanted` requests. A change takes effect at once, with a sample soon after
  // this call. Cheap if the request has not changed.
  void Want(const pb::SampleRequest& wanted);
  // Takes a sample soon, because another receiver has attached.
  void Hasten();

  // Sets the devices of the ranks, in the form of PlannedWorkers::devices.
  void SetDevices(std::vector<std::string> devices) { devices_of_ranks_ = std::move(devices); }

 private:
  void Arm(milliseconds after);
  void Turn();
  pb::NodeSample Take(Clock::time_point now);

  const std::function<const AttemptWorkers&()> ranks_;
  const std::function<void(pb::NodeSample)> emit_;
  asio::steady_timer timer_;
  DeviceWatch devices_;
  std::vector<std::string> devices_of_ranks_;
  milliseconds every_{0};  // interval of samples; 0 for no samples
  bool last_lines_ = false;
};

}  // namespace dslaunch
