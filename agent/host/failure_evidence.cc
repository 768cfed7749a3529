#include "agent/host/failure_evidence.h"

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "base/os/proc_text.h"
#include "base/text/sanitize.h"
#include "proto/contract/peer_failure.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxEvidenceBytes = 400;
constexpr std::string_view kTraceback = "Traceback (most recent call last):";
// First line of the traceback of a data loader's worker process. Python prints it below the
// exception that forwards it.
constexpr std::string_view kOriginal = "Original Traceback (most recent call last):";
constexpr std::string_view kUncaught = "terminate called after throwing an instance of ";
constexpr std::string_view kUncaughtByLibcxx = "libc++abi: terminating due to uncaught exception";
constexpr std::string_view kUncaughtText = "what():  ";
constexpr std::string_view kTrainer = "dslaunch-train: rank ";

using PeerFault = pb::Cause::PeerFault;

struct PeerText {
  PeerFault fault;
  std::string_view text;
};

// Texts about the failure of a peer. The first text that a line contains counts. peer_failure.h
// defines further texts.
constexpr PeerText kOfPeers[] = {
    {pb::Cause::UNREACHABLE, "client socket has failed to connect"},  // printed by c10d
    {pb::Cause::UNREACHABLE, "client socket has timed out"},
    // Printed by c10d if another program listens at the port.
    {pb::Cause::UNREACHABLE, "invalid value returned from server"},
    {pb::Cause::LATE, kPeerLateText},
    {pb::Cause::LATE, "failed to pass monitoredBarrier"},
    {pb::Cause::LATE, "caught collective operation timeout"},  // printed by NCCL's watchdog
    {pb::Cause::GONE, kPeerLostText},
    {pb::Cause::GONE, "remote process exited or there was a network error"},  // printed by NCCL
    {pb::Cause::GONE, "ncclRemoteError"},
    {pb::Cause::GONE, "Connection closed by remote peer"},
    {pb::Cause::GONE, "recvValue failed"},  // printed by c10d's TCPStore
    {pb::Cause::GONE, "sendBytes failed"},
    {pb::Cause::GONE, "TCPStore server has shut down"},
    // Printed by dslaunch's SDK if the program does not catch the exception.
    {pb::Cause::GONE, "shared memory of the ranks: "},
};

// Texts that count only in errors of connections between ranks, because a program may read its data
// set over a connection too.
constexpr PeerText kOfConnections[] = {
    {pb::Cause::UNREACHABLE, "Connection refused"},
    {pb::Cause::UNREACHABLE, "No route to host"},
    {pb::Cause::UNREACHABLE, "Network is unreachable"},
    {pb::Cause::LATE, "Socket Timeout"},
    {pb::Cause::LATE, "timed out"},
    {pb::Cause::LATE, "Timed out"},
    {pb::Cause::LATE, "timeout after"},
    {pb::Cause::LATE, "timeout caused pair closure"},
    {pb::Cause::GONE, "Connection closed"},
    {pb::Cause::GONE, "Connection was likely closed"},
    {pb::Cause::GONE, "Connection reset"},
    {pb::Cause::GONE, "connection reset"},
    {pb::Cause::GONE, "Broken pipe"},
    {pb::Cause::GONE, "broken pipe"},
    {pb::Cause::GONE, "Socket closed"},
    {pb::Cause::GONE, "unhandled system error"},
    {pb::Cause::GONE, "DistStoreError"},
    {pb::Cause::GONE, "DistNetworkError"},
};
constexpr std::string_view kBetweenRanks[] = {"gloo",
                                              "c10d",
                                              "TCPStore",
                                              "NCCL",
                                              "nccl",
                                              "ProcessGroup",
                                              "torch.distributed",
                                              "torch._C._distributed",
                                              "DistBackendError",
                                              "DistStoreError",
                                              "DistNetworkError"};

bool HasAny(std::string_view text, std::span<const std::string_view> phrases) {
  return std::ranges::any_of(phrases, [&](std::string_view phrase) {
    return text.find(phrase) != std::string_view::npos;
  });
}

std::optional<PeerFault> FirstOf(std::string_view line, std::span<const PeerText> texts) {
  const auto found = std::ranges::find_if(
      texts, [&](const PeerText& peer) { return line.find(peer.text) != std::string_view::npos; });
  return found == texts.end() ? std::nullopt : std::optional(found->fault);
}

// Returns how a peer failed according to the line; nullopt if the line is not about another rank.
std::optional<PeerFault> PeerFaultIn(std::string_view line) {
  if (const auto fault = FirstOf(line, kOfPeers)) return fault;
  return HasAny(line, kBetweenRanks) ? FirstOf(line, kOfConnections) : std::nullopt;
}

// Returns the line without the "[rank3]: " that Torch prints before an uncaught exception.
std::string_view WithoutRankTag(std::string_view line) {
  if (!line.starts_with("[rank")) return line;
  const size_t end = line.find("]: ");
  return end == std::string_view::npos ? line : line.substr(end + 3);
}

// Names of exceptions that a stop signal raises in a program.
constexpr std::string_view kInterrupts[] = {"KeyboardInterrupt", "SignalException", "SystemExit",
                                            "SIGTERM", "SIGINT"};

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Returns the lines of the root exception, which is the first exception of the last chain of
// tracebacks. The other exceptions of the chain were raised while the first exception was handled.
std::vector<std::string_view> RootException(std::string_view text) {
  std::vector<std::string_view> exception;
  bool chained = false;    // whether the next traceback continues the chain
  bool in_frames = false;  // whether the line is between a traceback's header and its exception
  bool collecting = false;
  while (!text.empty()) {
    const std::string_view line = WithoutRankTag(TakeLine(text));
    if (line.starts_with(kTraceback)) {
      in_frames = true;
      collecting = false;
      if (!std::exchange(chained, false)) exception.clear();
    } else if (line.starts_with(kOriginal)) {
      in_frames = true;
      collecting = false;
      exception.clear();
    } else if (line.starts_with("During handling of the above exception") ||
               line.starts_with("The above exception was the direct cause")) {
      chained = true;
    } else if (in_frames && !IsBlank(line) && line.front() != ' ') {
      in_frames = false;
      collecting = exception.empty();
      if (collecting) exception.push_back(line);
    } else if (collecting && !IsBlank(line)) {
      exception.push_back(line);
    } else {
      collecting = false;
    }
  }
  return exception;
}

// Returns the lines of the exception that ended a C++ program, as libstdc++ and libc++ print it:
// the exception's text, or else the line with its type.
std::vector<std::string_view> UncaughtException(std::string_view text) {
  std::vector<std::string_view> exception;
  bool is_type = false;  // whether the last line named the exception's type
  bool collecting = false;
  while (!text.empty()) {
    const std::string_view line = TakeLine(text);
    const size_t what = line.find(kUncaughtText);
    if (line.starts_with(kUncaught) || line.starts_with(kUncaughtByLibcxx)) {
      exception = {line};
      is_type = collecting = true;
    } else if (is_type && what != std::string_view::npos) {
      exception = {line.substr(what + kUncaughtText.size())};
      is_type = false;
    } else if (collecting && !IsBlank(line)) {
      exception.push_back(line);
      is_type = false;
    } else {
      collecting = is_type = false;
    }
  }
  return exception;
}

// Returns the lines of the exception that ended a Python or C++ program; empty if there is none.
std::vector<std::string_view> OwnException(std::string_view text) {
  std::vector<std::string_view> exception = RootException(text);
  return exception.empty() ? UncaughtException(text) : exception;
}

std::string EvidenceLine(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
  std::string text = SanitizeForTerminal(line);
  if (text.size() <= kMaxEvidenceBytes) return text;
  size_t end = kMaxEvidenceBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// Returns how an error of one or more lines is classified. Its first line is the main message.
FailureEvidence Judge(std::span<const std::string_view> error) {
  for (const std::string_view line : error) {
    if (const auto fault = PeerFaultIn(line)) return {true, *fault, EvidenceLine(line)};
  }
  return {.line = error.empty() ? "" : EvidenceLine(error.front())};
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) lines.push_back(TakeLine(text));
  return lines;
}

}  // namespace

std::optional<std::string> ReadErrorFile(std::string_view json) {
  if (json.size() > kMaxErrorFileBytes) return std::nullopt;
  const nlohmann::json file = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || !file.contains("message")) return std::nullopt;
  const nlohmann::json& message = file["message"];
  if (message.is_string()) return message.get<std::string>();
  if (!message.is_object() || !message.contains("message") || !message["message"].is_string())
    return std::nullopt;
  return message["message"].get<std::string>();
}

FailureEvidence ClassifyFailure(int signal, std::string_view last_lines,
                                std::string_view error_message) {
  const bool can_be_victim = signal == 0 || signal == SIGABRT;
  FailureEvidence evidence;
  if (!IsBlank(error_message)) {
    evidence = Judge(Lines(error_message));
    evidence.victim = evidence.victim && can_be_victim;
    return evidence;
  }
  if (!can_be_victim) return evidence;
  if (const auto exception = OwnException(last_lines); !exception.empty()) return Judge(exception);
  for (const std::string_view line : Lines(last_lines)) {
    if (const auto fault = PeerFaultIn(line)) return {true, *fault, EvidenceLine(line)};
    if (line.starts_with(kTrainer)) evidence.line = EvidenceLine(line);
  }
  return evidence;
}

std::optional<std::string> ErrorBeforeStop(std::string_view last_lines,
                                           std::string_view error_message) {
  const std::vector<std::string_view> error =
      IsBlank(error_message) ? OwnException(last_lines) : Lines(error_message);
  if (error.empty() || HasAny(error.front(), kInterrupts)) return std::nullopt;
  FailureEvidence evidence = Judge(error);
  if (evidence.victim) return std::nullopt;
  return std::move(evidence.line);
}

}  // namespace dslaunch
