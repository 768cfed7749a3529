// The values that the ranks of a job share, as rank 0 keeps them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// What a rank asks the store for.
struct StoreRequest {
  enum class Op : uint8_t {
    kSet = 1,     // values of keys
    kAppend,      // to the value of a key
    kCompareSet,  // keys[0]: to values[1] where it is values[0], or where there is none and
                  // values[0] is empty; answers the value it has then
    kAdd,         // `number` to the decimal number of keys[0]; answers the sum
    kGet,         // answers the values of keys once all are there
    kWait,        // answers once all keys are there
    kCheck,       // answers 1 where all keys are there
    kDelete,      // keys[0]; answers 1 where it was there
    kNumKeys,     // answers how many keys there are
  };
  Op op = Op::kSet;
  uint64_t id = 0;  // of the asker, for the answer
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

// On the wire: a length of 4 bytes, then that many bytes; numbers are little-endian. A longer
// message is refused.
inline constexpr size_t kMaxStoreMessage = size_t{64} << 20;
std::string EncodeRequest(const StoreRequest& request);
std::string EncodeReply(const StoreReply& reply);
// nullopt: these bytes, without the length, are none.
std::optional<StoreRequest> DecodeRequest(std::string_view bytes);
std::optional<StoreReply> DecodeReply(std::string_view bytes);
// Whether a reply has the values that were asked for, however rank 0 came to it.
bool Answers(const StoreReply& reply, const StoreRequest& request);
// Removes the first whole message from `buffer` and returns it without its length; nullopt: there
// is none yet. Throws std::runtime_error when it is longer than it may be.
std::optional<std::string> TakeStoreMessage(std::string& buffer);

class StoreCore {
 public:
  struct Answer {
    uint64_t client = 0;
    StoreReply reply;
  };

  // The answers that are due now, to requests that waited; a request has one answer.
  std::vector<Answer> OnRequest(uint64_t client, StoreRequest request);
  // Whatever it waits for is not answered.
  void OnClientGone(uint64_t client);

 private:
  struct Waiting {
    uint64_t client = 0;
    StoreRequest request;
  };

  bool HasAll(const std::vector<std::string>& keys) const;
  // Returns whether it stored the new value; `reply` gets the value that is stored then.
  bool CompareAndSet(const StoreRequest& request, StoreReply& reply);
  StoreReply Answered(const StoreRequest& request) const;

  std::map<std::string, std::string> values_;
  std::vector<Waiting> waiting_;  // in the order in which they came
};

}  // namespace dslaunch
