// Formats and parses the messages that the two ends of a resumable stream exchange before its
// frames. Each message has a fixed size, so reading a message never consumes bytes of the frames.
// Pure, except DrawTicket(), which reads random bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// The credential for resuming a stream. The node sends it as its first message, on the first
// connection only.
struct ResumeTicket {
  std::string socket;  // name of the node's Unix socket, which other users of the node may see
  std::string secret;  // secret that proves that the client owned the stream before
};
inline constexpr size_t kTicketBytes = 1 + 32 + 32;  // size of a formatted ResumeTicket

// The request that the front end sends as the first message of each further connection.
struct StreamResume {
  std::string secret;
  uint64_t received = 0;  // number of the stream's bytes that the front end has received
};
inline constexpr size_t kRequestBytes = 1 + 32 + 16;  // size of a formatted StreamResume

// Size of the node's answer to a request. The answer contains the number of the stream's bytes that
// the node has received.
inline constexpr size_t kAnswerBytes = 1 + 16;

// Returns a ticket of two random texts of 128 bits each. Fails with kInternal if the kernel
// provides no random bytes.
Result<ResumeTicket> DrawTicket();

std::string FormatTicket(const ResumeTicket& ticket);
std::string FormatRequest(const StreamResume& request);
std::string FormatAnswer(uint64_t received);

// Returns the ticket in a complete message; nullopt if the message is malformed.
std::optional<ResumeTicket> ParseTicket(std::string_view text);

// Returns the request in a complete message; nullopt if the message is malformed.
std::optional<StreamResume> ParseRequest(std::string_view text);

// Returns the number of received bytes in a complete answer; nullopt if the message is malformed.
std::optional<uint64_t> ParseAnswer(std::string_view text);

// Returns whether two secrets are equal. The time depends only on the size of the secrets.
bool IsSameSecret(std::string_view a, std::string_view b);

}  // namespace dslaunch
