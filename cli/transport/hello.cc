#include "cli/transport/hello.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/os/build_id.h"
#include "base/os/random_bytes.h"
#include "base/text/hex.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxBuildIdBytes = 128;
constexpr size_t kMaxShownBytes = 512;
constexpr size_t kMaxMachineBytes = 65;  // longest machine type that `uname -m` can print

}  // namespace

HelloScanner::HelloScanner(std::string_view nonce)
    : prefix_(std::string(kHelloMagic).append(nonce).append(" ")),
      machine_prefix_(std::string(kMachineMagic).append(nonce).append(" ")) {}

HelloScanner::State HelloScanner::Feed(std::string_view bytes) {
  if (state_ != State::kNeedMore) return state_;
  if (!in_line_) {
    // The prefix may be split over two calls, so the search begins before the new bytes.
    const size_t from = buffer_.size() - std::min(buffer_.size(), prefix_.size() - 1);
    buffer_.append(bytes);
    const size_t at = buffer_.find(prefix_, from);
    if (std::min(at, buffer_.size()) > kMaxNoiseBytes + prefix_.size()) {
      return Fail("more than 64 KiB precede it");
    }
    if (at == std::string::npos) return state_;
    in_line_ = true;
    line_ = buffer_.substr(at + prefix_.size());
    buffer_.resize(at);
  } else {
    line_.append(bytes);
  }
  const size_t end = line_.find('\n');
  if (std::min(end, line_.size()) > kMaxBuildIdBytes) return Fail("its build id is too long");
  if (end == std::string::npos) return state_;
  build_id_ = line_.substr(0, end);
  if (!IsHex(build_id_)) return Fail("its build id is not a hexadecimal number");
  leftover_ = line_.substr(end + 1);
  return state_ = State::kFound;
}

HelloScanner::State HelloScanner::Fail(std::string reason) {
  reason_ = std::move(reason);
  return state_ = State::kFailed;
}

std::optional<std::pair<size_t, size_t>> HelloScanner::MachineLine() const {
  const size_t at = buffer_.find(machine_prefix_);
  if (at == std::string::npos) return std::nullopt;
  const size_t end = buffer_.find('\n', at);
  if (end == std::string::npos) return std::nullopt;
  return std::pair(at, end + 1 - at);
}

std::string HelloScanner::Machine() const {
  const auto line = MachineLine();
  if (!line) return "";
  const size_t at = line->first + machine_prefix_.size();
  return OneLine(std::string_view(buffer_).substr(at, line->first + line->second - at),
                 kMaxMachineBytes);
}

std::string HelloScanner::Skipped() const {
  std::string text = buffer_;
  if (const auto line = MachineLine()) text.erase(line->first, line->second);
  return OneLine(text, kMaxShownBytes);
}

Result<void> AwaitHello(int stream, HelloScanner& scanner, Deadline deadline) {
  while (true) {
    pollfd ready{stream, POLLIN, 0};
    const int polled = ::poll(&ready, 1, deadline.PollMs());
    if (polled < 0 && errno == EINTR) continue;
    if (polled == 0) return Error{ExitCode::kTimedOut, "did not send its hello line in time"};
    char peeked[4096];
    const ssize_t n = ::recv(stream, peeked, sizeof peeked, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return Error{ExitCode::kUnavailable, "exited before its hello line"};
    const HelloScanner::State state = scanner.Feed({peeked, static_cast<size_t>(n)});
    if (state == HelloScanner::State::kFailed)
      return Error{ExitCode::kUnavailable, "sent an invalid hello line: " + scanner.reason()};
    const size_t taken = static_cast<size_t>(n) - scanner.leftover().size();
    if (::recv(stream, peeked, taken, 0) < 0) return Error{ExitCode::kIo, "cannot be read"};
    if (state == HelloScanner::State::kFound) return {};
  }
}

std::string MakeNonce() {
  std::array<char, 16> bits;
  while (!FillRandom(bits)) {
  }
  return ToHex({bits.data(), bits.size()});
}

std::string OneLine(std::string_view text, size_t max_bytes) {
  std::string line;
  for (const char c : text) {
    if (line.size() >= max_bytes) break;
    if (c > ' ' && c <= '~') {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string OutputClause(std::string_view stderr_tail, const std::string& noise) {
  std::string printed = OneLine(stderr_tail, kMaxShownBytes);
  if (!noise.empty()) printed += (printed.empty() ? "" : "; on stdout: ") + noise;
  return printed.empty() ? "" : "; it printed: " + printed;
}

}  // namespace dslaunch
