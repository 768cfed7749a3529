// What the two ends of a resumable stream say before its frames. Each text has one size, so that no
// byte of what follows is read with it. Pure, but for DrawTicket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// By what a stream is resumed. The node sends it first, on the first connection, and on no other.
struct ResumeTicket {
  std::string socket;  // names the node's Unix socket; others on the node may see it
  std::string secret;  // proves that who resumes is who had the stream before
};
inline constexpr size_t kTicketBytes = 1 + 32 + 32;

// The front end sends it first, on each further connection.
struct ResumeRequest {
  std::string secret;
  uint64_t received = 0;  // bytes of the stream that it has
};
inline constexpr size_t kRequestBytes = 1 + 32 + 16;

// The node's answer: how many bytes of the stream it has.
inline constexpr size_t kAnswerBytes = 1 + 16;

// Two random texts of 128 bits. kInternal where the kernel gives none.
Result<ResumeTicket> DrawTicket();

std::string FormatTicket(const ResumeTicket& ticket);
std::string FormatRequest(const ResumeRequest& request);
std::string FormatAnswer(uint64_t received);

// Of all the bytes of a text; nullopt: it is none.
std::optional<ResumeTicket> ParseTicket(std::string_view text);
std::optional<ResumeRequest> ParseRequest(std::string_view text);
std::optional<uint64_t> ParseAnswer(std::string_view text);

// Takes as long wherever they differ.
bool IsSameSecret(std::string_view a, std::string_view b);

}  // namespace dslaunch
