// Which tensors all ranks have submitted: what the ranks decide together in each cycle. Every rank
// feeds the same messages to an object of this class and so decides the same; there is no
// coordinator. Pure.
#pragma once

#include <c10/core/ScalarType.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dslaunch/horovod.h"

namespace dslaunch::horovod {

enum class Kind { kAllreduce, kAllgather, kBroadcast, kAlltoall, kBarrier };

const char* Name(Kind kind);  // "allreduce"

struct TensorForm {
  std::vector<int64_t> shape = {};
  at::ScalarType dtype = at::kFloat;
  int64_t elements() const;
  int64_t bytes() const;
  bool operator==(const TensorForm&) const = default;
};

// What one rank submits under one name.
struct Request {
  Kind kind = Kind::kAllreduce;
  std::string name = {};
  Op op = Op::kSum;
  double prescale_factor = 1.0;
  double postscale_factor = 1.0;
  int root = 0;                          // of kBroadcast, a rank of the set
  std::vector<TensorForm> tensors = {};  // one, or those of a group
  std::vector<int64_t> splits = {};      // of kAlltoall, one for each rank
  bool operator==(const Request&) const = default;
};

// JSON text, and back. Throws TrainError kInternal for text that is not of EncodeRequests.
std::string EncodeRequests(const std::vector<Request>& requests);
std::vector<Request> DecodeRequests(std::string_view text);

// What one rank says in one cycle: only what is new, but for the flags.
struct RankMessage {
  bool joined = false;         // it is in Join
  bool leaving = false;        // its Shutdown was called
  bool gives_up = false;       // a tensor is past InitOptions::stall_shutdown
  std::vector<size_t> cached;  // positions in the cache of requests that are as there
  std::vector<Request> requests;
};

// A request that all ranks have submitted, or those that have not joined.
struct Response {
  Request request;         // the first rank's
  std::string error = {};  // why it cannot be done; empty: it is to be done now, on all ranks
  std::vector<std::vector<int64_t>> splits =
      {};  // of kAllgather (first dimensions) and kAlltoall, by rank
};

struct Stall {
  std::string name;
  Kind kind = Kind::kAllreduce;
  std::vector<int> missing;  // the names of ranks that have not submitted it
  std::chrono::milliseconds age{0};
};

// One line: which ranks have not submitted what, for how long, and what to look at.
std::string StallText(const Stall& stall);

class Negotiation {
 public:
  using Clock = std::chrono::steady_clock;

  // `names` are what the ranks are called in messages, by rank.
  Negotiation(std::vector<int> names, size_t cache_capacity);

  // The position of a request that is the same as one in the cache.
  std::optional<size_t> CachedPosition(const Request& request) const;
  size_t cache_capacity() const { return capacity_; }

  struct Decision {
    std::vector<Response> ready;         // in an order that is the same on all ranks
    std::optional<int> left;             // a rank whose Shutdown was called: nothing follows
    std::optional<std::string> stalled;  // nothing follows: a rank gave up waiting, and why
    std::optional<int> last_joined;      // all ranks have joined, this one last
  };
  // `messages` are all ranks', by rank.
  Decision OnCycle(const std::vector<RankMessage>& messages, Clock::time_point now);

  // What some ranks have submitted and others not, the oldest first.
  std::vector<Stall> Stalls(Clock::time_point now) const;

 private:
  struct Pending {
    std::vector<std::optional<Request>> by_rank;
    Clock::time_point since;
  };
  void Submit(size_t rank, const Request& request, Clock::time_point now);
  bool IsReady(const Pending& pending) const;
  Response Respond(const Pending& pending) const;
  void Remember(const Request& request);

  const std::vector<int> names_;
  const size_t ranks_;
  const size_t capacity_;
  std::vector<std::string> order_;  // of pending_, by first submission
  std::map<std::string, Pending> pending_;
  std::vector<bool> joined_;
  int last_joined_ = 0;
  // The cache: a request by its position, and positions by how recently they were used.
  std::vector<std::optional<Request>> cache_;
  std::map<std::string, size_t> position_of_;
  std::list<size_t> used_;  // the most recently used first
};

// A tensor of a response.
struct Piece {
  size_t response = 0;
  size_t tensor = 0;
  bool operator==(const Piece&) const = default;
};

// The all-reduces among `responses` in messages of at most `threshold_bytes`: tensors of one dtype,
// operation and scale share one. Those of a group are never parted. 0: each request has its own.
std::vector<std::vector<Piece>> Fuse(const std::vector<Response>& responses,
                                     int64_t threshold_bytes);

}  // namespace dslaunch::horovod
