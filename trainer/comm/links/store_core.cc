#include "trainer/comm/links/store_core.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <utility>

namespace dslaunch {
namespace {

using Op = StoreRequest::Op;

template <class Number>
void Put(std::string& bytes, Number number) {
  for (size_t i = 0; i < sizeof number; ++i)
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(number) >> (8 * i)));
}

void Put(std::string& bytes, const std::vector<std::string>& texts) {
  Put(bytes, static_cast<uint32_t>(texts.size()));
  for (const std::string& text : texts) {
    Put(bytes, static_cast<uint32_t>(text.size()));
    bytes += text;
  }
}

// Reads numbers and texts from bytes. Once a read exceeds the bytes, good() returns false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class Number>
  Number Take() {
    if (rest_.size() < sizeof(Number)) {
      failed_ = true;
      return 0;
    }
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof(Number); ++i)
      number |= uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
    rest_.remove_prefix(sizeof(Number));
    return static_cast<Number>(number);
  }
  std::vector<std::string> TakeTexts() {
    std::vector<std::string> texts;
    const auto count = Take<uint32_t>();
    for (uint32_t i = 0; i < count && !failed_; ++i) {
      const auto size = Take<uint32_t>();
      if (failed_ || size > rest_.size()) {
        failed_ = true;
        break;
      }
      texts.emplace_back(rest_.substr(0, size));
      rest_.remove_prefix(size);
    }
    return texts;
  }
  bool good() const { return !failed_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

std::string WithLength(std::string body) {
  std::string bytes;
  Put(bytes, static_cast<uint32_t>(body.size()));
  return bytes + body;
}

// Returns whether a request has the right number of keys and of values.
bool IsWellFormed(const StoreRequest& request) {
  const size_t keys = request.keys.size(), values = request.values.size();
  switch (request.op) {
    case Op::kSet:
      return keys == values;
    case Op::kAppend:
      return keys == 1 && values == 1;
    case Op::kCompareSet:
      return keys == 1 && values == 2;
    case Op::kAdd:
    case Op::kDelete:
      return keys == 1 && values == 0;
    case Op::kGet:
    case Op::kWait:
    case Op::kCheck:
      return values == 0;
    case Op::kNumKeys:
      return keys == 0 && values == 0;
  }
  return false;
}

int64_t NumberIn(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string EncodeRequest(const StoreRequest& request) {
  std::string body;
  Put(body, static_cast<uint8_t>(request.op));
  Put(body, request.id);
  Put(body, request.number);
  Put(body, request.keys);
  Put(body, request.values);
  return WithLength(std::move(body));
}

std::string EncodeReply(const StoreReply& reply) {
  std::string body;
  Put(body, reply.id);
  Put(body, reply.number);
  Put(body, reply.values);
  return WithLength(std::move(body));
}

std::optional<StoreRequest> DecodeRequest(std::string_view bytes) {
  Reader reader(bytes);
  StoreRequest request;
  request.op = static_cast<Op>(reader.Take<uint8_t>());
  request.id = reader.Take<uint64_t>();
  request.number = reader.Take<int64_t>();
  request.keys = reader.TakeTexts();
  request.values = reader.TakeTexts();
  if (!reader.good() || !IsWellFormed(request)) return std::nullopt;
  return request;
}

std::optional<StoreReply> DecodeReply(std::string_view bytes) {
  Reader reader(bytes);
  StoreReply reply;
  reply.id = reader.Take<uint64_t>();
  reply.number = reader.Take<int64_t>();
  reply.values = reader.TakeTexts();
  if (!reader.good()) return std::nullopt;
  return reply;
}

bool Answers(const StoreReply& reply, const StoreRequest& request) {
  size_t values = 0;
  if (request.op == Op::kGet) values = request.keys.size();
  if (request.op == Op::kCompareSet) values = 1;
  return reply.id == request.id && reply.values.size() == values;
}

std::optional<std::string> TakeStoreMessage(std::string& buffer) {
  constexpr size_t kLengthBytes = 4;
  if (buffer.size() < kLengthBytes) return std::nullopt;
  const size_t size = Reader(std::string_view(buffer).substr(0, kLengthBytes)).Take<uint32_t>();
  if (size > kMaxStoreMessage) {
    throw std::runtime_error("store: a message of " + std::to_string(size) +
                             " bytes, which is more than may be");
  }
  if (buffer.size() < kLengthBytes + size) return std::nullopt;
  std::string message = buffer.substr(kLengthBytes, size);
  buffer.erase(0, kLengthBytes + size);
  return message;
}

bool StoreCore::HasAll(const std::vector<std::string>& keys) const {
  return std::ranges::all_of(keys, [this](const auto& key) { return values_.contains(key); });
}

StoreReply StoreCore::Answered(const StoreRequest& request) const {
  StoreReply reply;
  reply.id = request.id;
  if (request.op != Op::kGet) return reply;
  for (const std::string& key : request.keys) reply.values.push_back(values_.at(key));
  return reply;
}

bool StoreCore::CompareAndSet(const StoreRequest& request, StoreReply& reply) {
  const auto found = values_.find(request.keys[0]);
  const std::string& expected = request.values[0];
  if (found == values_.end() ? !expected.empty() : found->second != expected) {
    reply.values = {found == values_.end() ? expected : found->second};
    return false;
  }
  values_[request.keys[0]] = request.values[1];
  reply.values = {request.values[1]};
  return true;
}

std::vector<StoreCore::Answer> StoreCore::OnRequest(uint64_t client, StoreRequest request) {
  StoreReply reply;
  reply.id = request.id;
  bool changed = false;
  switch (request.op) {
    case Op::kSet:
      for (size_t i = 0; i < request.keys.size(); ++i)
        values_[request.keys[i]] = std::move(request.values[i]);
      changed = true;
      break;
    case Op::kAppend:
      values_[request.keys[0]] += request.values[0];
      changed = true;
      break;
    case Op::kCompareSet:
      changed = CompareAndSet(request, reply);
      break;
    case Op::kAdd: {
      std::string& value = values_[request.keys[0]];
      // Overflow of signed numbers is undefined, so the numbers are added as unsigned numbers.
      reply.number = static_cast<int64_t>(static_cast<uint64_t>(NumberIn(value)) +
                                          static_cast<uint64_t>(request.number));
      value = std::to_string(reply.number);
      changed = true;
      break;
    }
    case Op::kGet:
    case Op::kWait:
      if (!HasAll(request.keys)) {
        waiting_.push_back({client, std::move(request)});
        return {};
      }
      reply = Answered(request);
      break;
    case Op::kCheck:
      reply.number = HasAll(request.keys) ? 1 : 0;
      break;
    case Op::kDelete:
      reply.number = static_cast<int64_t>(values_.erase(request.keys[0]));
      break;
    case Op::kNumKeys:
      reply.number = static_cast<int64_t>(values_.size());
      break;
  }
  std::vector<Answer> answers;
  answers.push_back({client, std::move(reply)});
  if (!changed) return answers;
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (!HasAll(waiting.request.keys)) return false;
    answers.push_back({waiting.client, Answered(waiting.request)});
    return true;
  });
  return answers;
}

void StoreCore::OnClientGone(uint64_t client) {
  std::erase_if(waiting_, [client](const Waiting& waiting) { return waiting.client == client; });
}

}  // namespace dslaunch
