// Stores, on rank 0, the values that the ranks of a job share. Performs no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// A rank's request to the store.
struct StoreRequest {
  enum class Op : uint8_t {
    kSet = 1,  // sets `keys` to `values`
    kAppend,   // appends values[0] to the value of keys[0]
    // Sets keys[0] to values[1] if keys[0] has the value values[0], or if keys[0] has no value and
    // values[0] is empty. Answers with the value afterwards.
    kCompareSet,
    kAdd,      // adds `number` to the decimal number of keys[0]; answers with the sum
    kGet,      // answers with the values of `keys` once all exist
    kWait,     // answers once all `keys` exist
    kCheck,    // answers with 1 if all `keys` exist, else 0
    kDelete,   // deletes keys[0]; answers with 1 if it existed
    kNumKeys,  // answers with the number of keys
  };
  Op op = Op::kSet;
  uint64_t id = 0;  // id of the request, chosen by the client; returned in the reply
  int64_t number = 0;
  std::vector<std::string> keys;
  std::vector<std::string> values;

  bool operator==(const StoreRequest&) const = default;
};

struct StoreReply {
  uint64_t id = 0;
  int64_t number = 0;
  std::vector<std::string> values;

  bool operator==(const StoreReply&) const = default;
};

// Maximum size of a message in bytes; longer messages are refused. A message is encoded as a length
// of 4 bytes, then that many bytes. Numbers are little-endian.
inline constexpr size_t kMaxStoreMessage = size_t{64} << 20;
// Returns a request as a message, including its length.
std::string EncodeRequest(const StoreRequest& request);
// Returns a reply as a message, including its length.
std::string EncodeReply(const StoreReply& reply);
// Decodes a request from `bytes`, which exclude the length. Returns nullopt if they are not a valid
// request.
std::optional<StoreRequest> DecodeRequest(std::string_view bytes);
// Decodes a reply from `bytes`, which exclude the length. Returns nullopt if they are not a valid
// reply.
std::optional<StoreReply> DecodeReply(std::string_view bytes);
// Returns whether a reply has the id and the number of values that the request expects. Clients
// check this because they do not trust rank 0.
bool Answers(const StoreReply& reply, const StoreRequest& request);
// Removes the first message from `buffer` and returns it without its length; nullopt if the message
// is not complete yet. Throws std::runtime_error if the message is longer than kMaxStoreMessage.
std::optional<std::string> TakeStoreMessage(std::string& buffer);

class StoreCore {
 public:
  struct Answer {
    uint64_t client = 0;
    StoreReply reply;
  };

  // Handles a request. Returns the answers that are due now, including answers to earlier requests
  // that waited. Each request gets exactly one answer.
  std::vector<Answer> OnRequest(uint64_t client, StoreRequest request);
  // Drops the waiting requests of `client`.
  void OnClientGone(uint64_t client);

 private:
  struct Waiting {
    uint64_t client = 0;
    StoreRequest request;
  };

  bool HasAll(const std::vector<std::string>& keys) const;
  // Stores the request's new value if the key has the expected value. Returns whether the value was
  // stored. Sets `reply` to the key's value afterwards.
  bool CompareAndSet(const StoreRequest& request, StoreReply& reply);
  StoreReply Answered(const StoreRequest& request) const;

  std::map<std::string, std::string> values_;
  std::vector<Waiting> waiting_;  // requests that cannot be answered yet, in the order of arrival
};

}  // namespace dslaunch
