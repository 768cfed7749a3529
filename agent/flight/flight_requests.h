// Requests a dump of PyTorch's Flight Recorder from a rank's process, through the named pipe that
// NCCL's process group watches. A program without that process group has no pipe, so its request
// fails at once.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/stacks.pb.h"

namespace dslaunch {

// Path prefixes of a rank's pipe and dump, to which PyTorch appends the rank.
struct FlightFiles {
  std::string pipe;
  std::string dump;
};
// Returns the paths of a rank, which follow from the variables that WorkerEnv::Defaults() sets for
// `rank_folder`.
FlightFiles FlightFilesIn(const std::string& rank_folder, uint32_t rank);

// Returns whether named pipes can be made in a folder. PyTorch ends a process that cannot make its
// pipe, so such a folder must not be used.
bool TakesPipes(const std::string& folder);

// Requests dumps from this node's ranks. Used on the loop's thread.
class FlightRequests {
 public:
  // Limit for the process to write its dump. The process checks its pipe once a second.
  static constexpr milliseconds kLimit{4'000};

  using Done = std::function<void(pb::FlightRecord)>;

  explicit FlightRequests(asio::io_context& loop) : loop_(loop) {}

  // Requests a dump. Calls `done` once, never from inside this call, with the rank's record. If
  // there is no record, its `trouble` is the reason.
  void Begin(uint32_t rank, const std::string& rank_folder, Done done);

  // Returns whether the rank's process may have worked on a dump after `since`. This is the case if
  // a request reached the process and ended after `since`, or is still pending.
  bool WroteSince(uint32_t rank, Clock::time_point since) const;

 private:
  struct Request;

  void Poll(std::shared_ptr<Request> request);
  void End(Request& request, pb::FlightRecord record);

  asio::io_context& loop_;
  // Time when the last request that reached each rank's process ended; nullopt while the request is
  // pending.
  std::map<uint32_t, std::optional<Clock::time_point>> ends_;
};

}  // namespace dslaunch
