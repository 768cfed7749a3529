#include "net/resumable/resumable_core.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr char kData = 'D';
constexpr char kDelivered = 'A';
constexpr char kEnd = 'E';
constexpr size_t kHeaderBytes = 5;
constexpr size_t kNumberBytes = 8;
// Number of delivered bytes after which an acknowledgement is sent. Each node has an idle stream,
// whose peer keeps up to this many bytes, so the number is small.
constexpr size_t kAcknowledgeEvery = size_t{1} << 10;

// Limit of the unused capacity of a buffer; a larger buffer is freed.
constexpr size_t kMostSpare = size_t{1} << 10;

std::string BigEndian(uint64_t number, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i)
    text[bytes - 1 - i] = static_cast<char>(number >> (8 * i) & 0xff);
  return text;
}

uint64_t FromBigEndian(std::string_view text) {
  uint64_t number = 0;
  for (const char byte : text) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

Error Broken(const std::string& what) { return {ExitCode::kUnavailable, what}; }

}  // namespace

// --- Bytes to the peer ---

void ResumableCore::Send(std::string_view bytes) {
  kept_ += bytes;
  sent_ += bytes.size();
  AddData(bytes);
}

void ResumableCore::SendEnd() {
  if (!std::exchange(end_sent_, true)) AddFrame(kEnd, "");
}

void ResumableCore::AddData(std::string_view bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kMostInFrame)))
    AddFrame(kData, bytes.substr(0, kMostInFrame));
}

void ResumableCore::AddFrame(char kind, std::string_view content) {
  frames_ += kind;
  frames_ += BigEndian(content.size(), kHeaderBytes - 1);
  frames_ += content;
}

// --- Bytes from the peer ---

Result<void> ResumableCore::OnBytes(std::string_view bytes) {
  std::string joined;
  if (!partial_.empty()) {
    joined = std::exchange(partial_, {});
    joined += bytes;
  }
  std::string_view rest = joined.empty() ? bytes : joined;
  while (rest.size() >= kHeaderBytes) {
    const uint64_t size = FromBigEndian(rest.substr(1, kHeaderBytes - 1));
    if (size > kMostInFrame) return Broken("a frame of " + std::to_string(size) + " bytes");
    if (rest.size() - kHeaderBytes < size) break;
    DSL_TRY(OnFrame(rest.front(), rest.substr(kHeaderBytes, size)));
    rest.remove_prefix(kHeaderBytes + size);
  }
  partial_ = rest;
  return {};
}

Result<void> ResumableCore::OnFrame(char kind, std::string_view content) {
  if (kind == kData) {
    if (peer_ended_) return Broken("data after the end of its stream");
    if (received_ - delivered_ + content.size() > kWindow) return Broken("more than its window");
    arrived_ += content;
    received_ += content.size();
    return {};
  }
  if (kind == kDelivered && content.size() == kNumberBytes) {
    const uint64_t number = FromBigEndian(content);
    if (number < peer_delivered_ || number > sent_)
      return Broken("an acknowledgement of bytes that were not sent");
    peer_delivered_ = number;
    ForgetUpTo(number);
    return {};
  }
  if (kind == kEnd && content.empty()) {
    peer_ended_ = true;  // the peer may repeat its end on a later connection
    return {};
  }
  return Broken("a frame of unknown type");
}

void ResumableCore::OnDelivered(size_t bytes) {
  delivered_ += bytes;
  if (delivered_ - acknowledged_ >= kAcknowledgeEvery) Acknowledge();
}

void ResumableCore::Acknowledge() {
  acknowledged_ = delivered_;
  AddFrame(kDelivered, BigEndian(delivered_, kNumberBytes));
}

void ResumableCore::ForgetUpTo(uint64_t number) {
  if (number <= kept_from_) return;
  kept_.erase(0, static_cast<size_t>(number - kept_from_));
  kept_from_ = number;
  if (kept_.capacity() > kMostSpare && kept_.size() < kept_.capacity() / 4) kept_.shrink_to_fit();
}

// --- Changes of the connection ---

void ResumableCore::ResumeAt(uint64_t peer_received) {
  partial_.clear();
  frames_.clear();
  ForgetUpTo(peer_received);
  Acknowledge();  // an earlier acknowledgement may have been lost with the old connection
  AddData(kept_);
  if (end_sent_) AddFrame(kEnd, "");
}

}  // namespace dslaunch
