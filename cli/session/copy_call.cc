#include "cli/session/copy_call.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/errno_text.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"
#include "proto/wire/peer_check.h"

namespace dslaunch {
namespace {

constexpr uint64_t kChunkBytes = 128 << 10;
constexpr int kEntriesAtOnce = 500;
// Limits of the bytes in transit. These bytes delay all other messages on the connection, such as
// renewals of the lease, so about as many bytes as arrive in a second are sent, within these
// limits.
constexpr uint64_t kLeastWindowBytes = 256 << 10;
constexpr uint64_t kMostWindowBytes = 16 << 20;
constexpr milliseconds kMeasureEvery(250);
constexpr milliseconds kLifeSignEvery(5'000);

}  // namespace

std::shared_ptr<CopyCall> CopyCall::Start(pb::Agent::Stub& stub,
                                          std::shared_ptr<const void> counted) {
  const std::shared_ptr<CopyCall> call(new CopyCall(std::move(counted)));
  stub.async()->Copy(&call->context_, call.get());
  call->AddHold();  // keeps the call until Send has returned
  call->Begin();
  call->StartCall();
  return call;
}

Result<pb::CopyDone> CopyCall::Send(const CopyList& list) {
  Result<pb::CopyDone> done = SendNow(list);
  if (!done.ok()) context_.TryCancel();
  RemoveHold();
  return done;
}

void CopyCall::Abandon() {
  context_.TryCancel();
  RemoveHold();
}

Result<pb::CopyDone> CopyCall::SendNow(const CopyList& list) {
  DSL_TRY_ASSIGN(const CopyGate::Turn turn, AwaitTurn());
  DSL_TRY(SendList(list));
  while (true) {
    DSL_TRY_ASSIGN(pb::CopyOutput output, NextOutput());
    switch (output.output_case()) {
      case pb::CopyOutput::kWanted:
        DSL_TRY(SendParts(list, output.wanted()));
        break;
      case pb::CopyOutput::kDone:
        return std::move(*output.mutable_done());
      case pb::CopyOutput::kFailure:
        return Error{static_cast<ExitCode>(output.failure().exit_code()),
                     output.failure().message()};
      case pb::CopyOutput::kReceivedBytes:
        OnReceived(output.received_bytes());
        break;
      default:
        break;
    }
  }
}

Result<CopyGate::Turn> CopyCall::AwaitTurn() {
  Deadline next_sign = Deadline::After(kLifeSignEvery);
  while (true) {
    if (std::optional<CopyGate::Turn> turn = CopyGate::Shared().TryEnter()) return *std::move(turn);
    if (next_sign.Expired()) {
      if (!Write({}, Deadline::After(kCopyStall))) return Broken();
      next_sign = Deadline::After(kLifeSignEvery);
    }
    if (HasEnded()) return Broken();
    std::this_thread::sleep_for(kCopyTurnPoll);
  }
}

Result<void> CopyCall::SendList(const CopyList& list) {
  pb::CopyInput head;
  head.mutable_head()->set_key(list.key);
  head.mutable_head()->set_num_entries(list.entries.size());
  if (!Write(std::move(head), Deadline::After(kCopyStall))) return Broken();
  for (size_t i = 0; i < list.entries.size();) {
    pb::CopyInput input;
    for (int n = 0; n < kEntriesAtOnce && i < list.entries.size(); ++n, ++i)
      *input.mutable_entries()->add_entries() = list.entries[i];
    if (!Write(std::move(input), Deadline::After(kCopyStall))) return Broken();
  }
  return {};
}

Result<void> CopyCall::SendParts(const CopyList& list, const pb::CopyWanted& wanted) {
  for (const pb::CopyPart& part : wanted.parts()) {
    if (part.entry() >= list.entries.size() ||
        list.entries[part.entry()].kind() != pb::CopyEntry::FILE ||
        part.offset() >= list.entries[part.entry()].size()) {
      return Error{ExitCode::kUnavailable, "its agent wants a file that is not to be copied"};
    }
    DSL_TRY(SendFile(list, part));
  }
  return {};
}

Result<void> CopyCall::SendFile(const CopyList& list, const pb::CopyPart& part) {
  const std::string& path = list.sources[part.entry()];
  const uint64_t size = list.entries[part.entry()].size();
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Error{ExitCode::kIo, "cannot read " + Quoted(path) + ": " + ErrnoText(errno)};
  for (uint64_t at = part.offset(); at < size;) {
    DSL_TRY(AwaitWindow());
    std::string chunk(std::min(kChunkBytes, size - at), '\0');
    const ssize_t n = ::pread(file.get(), chunk.data(), chunk.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{ExitCode::kIo, "cannot read " + Quoted(path) + ": " + ErrnoText(errno)};
    if (n == 0)
      return Error{ExitCode::kIo,
                   Quoted(path) + " became shorter while it was copied; start again"};
    chunk.resize(static_cast<size_t>(n));
    at += chunk.size();
    sent_bytes_ += chunk.size();
    pb::CopyInput input;
    input.set_data(std::move(chunk));
    if (!Write(std::move(input), Deadline::After(kCopyStall))) return Broken();
  }
  return {};
}

Result<void> CopyCall::AwaitWindow() {
  while (HasMessage() ||
         sent_bytes_ - received_bytes_ > std::max(window_bytes_, kLeastWindowBytes)) {
    DSL_TRY_ASSIGN(const pb::CopyOutput output, NextOutput());
    if (output.has_failure()) {
      return Error{static_cast<ExitCode>(output.failure().exit_code()), output.failure().message()};
    }
    if (output.has_done() || output.has_wanted())
      return Error{ExitCode::kUnavailable, "its agent said it has files that were not sent"};
    if (output.output_case() == pb::CopyOutput::kReceivedBytes) OnReceived(output.received_bytes());
  }
  return {};
}

void CopyCall::OnReceived(uint64_t bytes) {
  received_bytes_ = std::min(bytes, sent_bytes_);
  const Clock::time_point now = Clock::now();
  const auto passed = std::chrono::duration_cast<milliseconds>(now - measured_at_);
  if (passed < kMeasureEvery) return;
  const uint64_t in_a_second =
      (received_bytes_ - measured_bytes_) * 1000 / static_cast<uint64_t>(passed.count());
  window_bytes_ = std::clamp(in_a_second, kLeastWindowBytes, kMostWindowBytes);
  measured_at_ = now;
  measured_bytes_ = received_bytes_;
}

Result<pb::CopyOutput> CopyCall::NextOutput() {
  // Once the node has received all bytes, only its disk needs time, so kCopyEnd is the limit.
  const bool has_all = sent_bytes_ > 0 && received_bytes_ == sent_bytes_;
  std::optional<pb::CopyOutput> output = Read(Deadline::After(has_all ? kCopyEnd : kCopyStall));
  if (!output) return Broken();
  if (const Result<void> checked = CheckCopyOutput(*output); !checked.ok())
    return Error{checked.error().code, "its agent sent " + checked.error().message};
  return *std::move(output);
}

Error CopyCall::Broken() const {
  return Error{ExitCode::kUnavailable,
               HasEnded() ? std::string("the connection to its agent broke while files were copied")
                          : "no byte of the copies has moved for " +
                                std::to_string(kCopyStall.count() / 1000) + " s or longer"};
}

}  // namespace dslaunch
