// Decides in each cycle which tensors all ranks have submitted. Every rank passes the same messages
// to its own object, so that all ranks reach the same decision without a coordinator. Performs no
// I/O.
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

// Returns the name of a kind for messages, such as "allreduce".
const char* Name(Kind kind);

struct TensorForm {
  std::vector<int64_t> shape = {};
  at::ScalarType dtype = at::kFloat;
  int64_t elements() const;
  int64_t bytes() const;
  bool operator==(const TensorForm&) const = default;
};

// A rank's request to exchange one tensor, or the tensors of a group, under a certain name.
struct Request {
  Kind kind = Kind::kAllreduce;
  std::string name = {};
  Op op = Op::kSum;
  double prescale_factor = 1.0;
  double postscale_factor = 1.0;
  int root = 0;                          // rank in the set whose tensor is sent, for kBroadcast
  std::vector<TensorForm> tensors = {};  // form of the tensor, or of all tensors of a group
  std::vector<int64_t> splits = {};      // number of rows to send to each rank, for kAlltoall
  bool operator==(const Request&) const = default;
};

// Returns requests as JSON text.
std::string EncodeRequests(const std::vector<Request>& requests);
// Parses the text of EncodeRequests. Throws TrainError kInternal for any other text.
std::vector<Request> DecodeRequests(std::string_view text);

// Message of a rank in one cycle: its flags and its new requests.
struct RankMessage {
  bool joined = false;         // true if the rank waits in Join
  bool leaving = false;        // true if the rank has called Shutdown
  bool gives_up = false;       // true if InitOptions::stall_shutdown has passed for a request
  std::vector<size_t> cached;  // positions in the cache of new requests
  std::vector<Request> requests;
};

// A request that all ranks, except ranks that have joined, have submitted.
struct Response {
  Request request;  // request of the lowest rank that submitted it
  // Reason why the exchange is impossible; empty if all ranks perform it now.
  std::string error = {};
  std::vector<std::vector<int64_t>> splits =
      {};  // by rank: first dimension for kAllgather, splits for kAlltoall
};

struct Stall {
  std::string name;
  Kind kind = Kind::kAllreduce;
  std::vector<int> missing;  // names of the ranks that have not submitted the tensor
  std::chrono::milliseconds age{0};
};

// Returns a message with the tensor, the ranks that have not submitted it, the time and a hint.
std::string StallText(const Stall& stall);

class Negotiation {
 public:
  using Clock = std::chrono::steady_clock;

  // Creates an empty negotiation. `names` has the ranks' numbers for messages, by rank in the set.
  Negotiation(std::vector<int> names, size_t cache_capacity);

  // Returns the position of an equal request in the cache; nullopt if there is none.
  std::optional<size_t> CachedPosition(const Request& request) const;
  size_t cache_capacity() const { return capacity_; }

  struct Decision {
    std::vector<Response> ready;         // exchanges to perform, in the same order on all ranks
    std::optional<int> left;             // rank that has called Shutdown; no cycle follows
    std::optional<std::string> stalled;  // reason why a rank has given up waiting; no cycle follows
    std::optional<int> last_joined;      // rank that joined last; set when all ranks have joined
  };
  // Processes the messages of a cycle. `messages` has one message of each rank, by rank.
  Decision OnCycle(const std::vector<RankMessage>& messages, Clock::time_point now);

  // Returns the tensors that only some ranks have submitted, oldest first.
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
  std::vector<std::string> order_;  // names in `pending_`, in the order of first submission
  std::map<std::string, Pending> pending_;
  std::vector<bool> joined_;
  int last_joined_ = 0;
  std::vector<std::optional<Request>> cache_;  // cached requests, by position
  std::map<std::string, size_t> position_of_;  // positions in the cache, by name of the request
  std::list<size_t> used_;                     // positions in the cache, most recently used first
};

// Identifies a tensor: the index of its response and its position in the request.
struct Piece {
  size_t response = 0;
  size_t tensor = 0;
  bool operator==(const Piece&) const = default;
};

// Divides the all-reduces in `responses` into messages of at most `threshold_bytes`. Tensors with
// the same dtype, operation and scale share a message. Tensors of a group with the same dtype
// always share one message. If `threshold_bytes` is 0, each request has its own messages.
std::vector<std::vector<Piece>> Fuse(const std::vector<Response>& responses,
                                     int64_t threshold_bytes);

}  // namespace dslaunch::horovod
