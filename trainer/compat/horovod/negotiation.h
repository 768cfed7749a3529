// Decides in each cycle which tensors all ranks have submitted. Every rank passes the same messages
// to its own object and so reaches the same decision, without a coordinator. Pure.
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

// A rank's request under one name.
struct Request {
  Kind kind = Kind::kAllreduce;
  std::string name = {};
  Op op = Op::kSum;
  double prescale_factor = 1.0;
  double postscale_factor = 1.0;
  int root = 0;                          // sender of a kBroadcast, a rank of the set
  std::vector<TensorForm> tensors = {};  // one tensor, or all tensors of a group
  std::vector<int64_t> splits = {};      // rows that a kAlltoall sends to each rank
  bool operator==(const Request&) const = default;
};

// Requests as JSON text, and back. DecodeRequests throws TrainError kInternal for other text.
std::string EncodeRequests(const std::vector<Request>& requests);
std::vector<Request> DecodeRequests(std::string_view text);

// A rank's message of one cycle: its flags and its new requests.
struct RankMessage {
  bool joined = false;         // the rank is in Join
  bool leaving = false;        // Shutdown was called
  bool gives_up = false;       // a tensor is past InitOptions::stall_shutdown
  std::vector<size_t> cached;  // new requests that are in the cache, by position there
  std::vector<Request> requests;
};

// A request that all ranks, except those that have joined, have submitted.
struct Response {
  Request request;         // the first rank's
  std::string error = {};  // why it is impossible; empty: all ranks do it now
  std::vector<std::vector<int64_t>> splits =
      {};  // one value for each rank, for kAllgather (first dimensions) and kAlltoall
};

struct Stall {
  std::string name;
  Kind kind = Kind::kAllreduce;
  std::vector<int> missing;  // names of the ranks that have not submitted it
  std::chrono::milliseconds age{0};
};

// Returns a line with the tensor, the ranks that have not submitted it, the time and a hint.
std::string StallText(const Stall& stall);

class Negotiation {
 public:
  using Clock = std::chrono::steady_clock;

  // `names` are the ranks' names in messages, by rank.
  Negotiation(std::vector<int> names, size_t cache_capacity);

  // Returns the position of an equal request in the cache, if there is one.
  std::optional<size_t> CachedPosition(const Request& request) const;
  size_t cache_capacity() const { return capacity_; }

  struct Decision {
    std::vector<Response> ready;         // responses in the same order on all ranks
    std::optional<int> left;             // a rank that has called Shutdown; no cycle follows
    std::optional<std::string> stalled;  // why a rank gave up waiting; no cycle follows
    std::optional<int> last_joined;      // the rank that joined last, once all have
  };
  // `messages` has one of each rank, by rank.
  Decision OnCycle(const std::vector<RankMessage>& messages, Clock::time_point now);

  // Returns the tensors that some ranks have submitted and others not, the oldest first.
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
  std::vector<std::string> order_;  // names in pending_, by first submission
  std::map<std::string, Pending> pending_;
  std::vector<bool> joined_;
  int last_joined_ = 0;
  // The cache: requests by position, positions by name, and positions by last use.
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

// Divides the all-reduces among `responses` into messages of at most `threshold_bytes`; tensors of
// one dtype, operation and scale share a message, and tensors of a group always do. With 0 each
// request has its own message.
std::vector<std::vector<Piece>> Fuse(const std::vector<Response>& responses,
                                     int64_t threshold_bytes);

}  // namespace dslaunch::horovod
