#include "proto/contract/rank_link.h"

namespace dslaunch {
namespace {

constexpr uint32_t kMagic = 0x314c5244;  // bytes "DRL1", which begin each message
constexpr size_t kHeaderBytes = 8 * 4 + 8;
static_assert(kHeaderBytes + kMaxRankLinkLabel + kMaxRankLinkText <= kRankLinkMessageBytes);

// Appends the `size` lowest bytes of `number` in little-endian order, independent of the machine's
// byte order.
void PutNumber(std::string& bytes, uint64_t number, size_t size) {
  for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(number >> (8 * i)));
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  uint64_t Number(size_t size) {
    uint64_t number = 0;
    for (size_t i = 0; i < size; ++i)
      number |= uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
    rest_.remove_prefix(size);
    return number;
  }
  uint32_t Number32() { return static_cast<uint32_t>(Number(4)); }
  std::string Text(size_t size) {
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }

 private:
  std::string_view rest_;
};

Error NoMessage(const std::string& why) {
  return {ExitCode::kBadInput, "a message about connections of ranks " + why};
}

}  // namespace

std::string EncodeRankLink(const RankLinkMessage& message) {
  const std::string label = message.label.substr(0, kMaxRankLinkLabel);
  const std::string text = message.text.substr(0, kMaxRankLinkText);
  std::string bytes;
  bytes.reserve(kRankLinkMessageBytes);
  for (const uint32_t number :
       {kMagic, static_cast<uint32_t>(message.kind), message.from, message.to, message.node,
        static_cast<uint32_t>(label.size()), static_cast<uint32_t>(text.size()), uint32_t{0}}) {
    PutNumber(bytes, number, 4);
  }
  PutNumber(bytes, message.attempt, 8);
  bytes += label + text;
  bytes.resize(kRankLinkMessageBytes, '\0');
  return bytes;
}

Result<RankLinkMessage> DecodeRankLink(std::string_view bytes) {
  if (bytes.size() != kRankLinkMessageBytes)
    return NoMessage("has " + std::to_string(bytes.size()) + " bytes");
  Reader reader(bytes);
  if (reader.Number32() != kMagic) return NoMessage("does not begin like one");
  const uint32_t kind = reader.Number32();
  if (kind < static_cast<uint32_t>(RankLinkMessage::Kind::kHello) ||
      kind > static_cast<uint32_t>(RankLinkMessage::Kind::kVote)) {
    return NoMessage("is of the unknown kind " + std::to_string(kind));
  }
  RankLinkMessage message;
  message.kind = static_cast<RankLinkMessage::Kind>(kind);
  message.from = reader.Number32();
  message.to = reader.Number32();
  message.node = reader.Number32();
  const uint32_t label_bytes = reader.Number32();
  const uint32_t text_bytes = reader.Number32();
  reader.Number32();  // unused
  if (label_bytes > kMaxRankLinkLabel || text_bytes > kMaxRankLinkText)
    return NoMessage("is longer than it may be");
  message.attempt = reader.Number(8);
  message.label = reader.Text(label_bytes);
  message.text = reader.Text(text_bytes);
  return message;
}

}  // namespace dslaunch
