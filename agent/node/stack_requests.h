// Requests the stacks of this node's ranks from the supervisor, and collects the answers.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "agent/core/agent_action.h"
#include "base/deadline.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// Manages the requests in progress. Used on the loop's thread.
class StackRequests {
 public:
  // Limit for the answers to one request. Answers that have not arrived by then are reported as
  // missing.
  static constexpr milliseconds kLimit{10'000};

  using Send = std::function<void(const pb::SupervisorRequest&)>;
  using Done = std::function<void(std::vector<pb::RankStacks>)>;

  StackRequests(asio::io_context& loop, Send send) : loop_(loop), send_(std::move(send)) {}

  enum class Kind {
    kFrames,        // stacks with Python frames only
    kNative,        // stacks with Python, C and C++ frames
    kSharedMemory,  // signature of shared memory only (Look.shared_memory)
  };

  // Calls `done` once with the stacks of the ranks in `places`, in the same order. If `places` is
  // empty, calls `done` at once; otherwise never from inside this call.
  void Begin(std::vector<RankPlace> places, Kind kind, Done done);

  // Handles an answer of the supervisor: limits its size and checks its numbers. Ignores an answer
  // that was not requested.
  void OnLooked(pb::Looked& looked);

 private:
  struct Request {
    Request(asio::io_context& loop, Done call) : timer(loop), done(std::move(call)) {}

    asio::steady_timer timer;
    Done done;
    std::vector<pb::RankStacks> ranks;
    size_t missing = 0;
  };
  struct Asked {
    uint64_t request = 0;
    size_t index = 0;  // index of the rank in Request::ranks
  };

  void Finish(uint64_t request);

  asio::io_context& loop_;
  const Send send_;
  std::map<uint64_t, Request> requests_;
  uint64_t last_request_ = 0;
  std::map<uint64_t, Asked> asked_;  // requested looks, by Look.number
  uint64_t last_number_ = 0;
};

}  // namespace dslaunch
