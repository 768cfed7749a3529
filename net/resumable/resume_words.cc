#include "net/resumable/resume_words.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "base/errno_text.h"
#include "base/os/random_bytes.h"
#include "base/text/hex.h"

namespace dslaunch {
namespace {

constexpr char kTicket = 'T';
constexpr char kRequest = 'R';
constexpr char kAnswer = 'C';
constexpr size_t kWordChars = 32;
constexpr size_t kNumberChars = 16;

std::string FormatNumber(uint64_t number) {
  std::array<char, kNumberChars + 1> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(number));
  return text.data();
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  if (!IsHex(text)) return std::nullopt;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool IsText(std::string_view text, char kind, size_t size) {
  return text.size() == size && text.front() == kind && IsHex(text.substr(1));
}

}  // namespace

Result<ResumeTicket> DrawTicket() {
  std::array<char, kWordChars> bytes{};
  if (!FillRandom(bytes)) return Error{ExitCode::kInternal, "getrandom: " + ErrnoText(errno)};
  const std::string text = ToHex({bytes.data(), bytes.size()});
  return ResumeTicket{text.substr(0, kWordChars), text.substr(kWordChars)};
}

std::string FormatTicket(const ResumeTicket& ticket) {
  return kTicket + ticket.socket + ticket.secret;
}

std::string FormatRequest(const StreamResume& request) {
  return kRequest + request.secret + FormatNumber(request.received);
}

std::string FormatAnswer(uint64_t received) { return kAnswer + FormatNumber(received); }

std::optional<ResumeTicket> ParseTicket(std::string_view text) {
  if (!IsText(text, kTicket, kTicketBytes)) return std::nullopt;
  return ResumeTicket{std::string(text.substr(1, kWordChars)),
                      std::string(text.substr(1 + kWordChars))};
}

std::optional<StreamResume> ParseRequest(std::string_view text) {
  if (!IsText(text, kRequest, kRequestBytes)) return std::nullopt;
  const std::optional<uint64_t> received = ParseNumber(text.substr(1 + kWordChars));
  if (!received) return std::nullopt;
  return StreamResume{std::string(text.substr(1, kWordChars)), *received};
}

std::optional<uint64_t> ParseAnswer(std::string_view text) {
  if (!IsText(text, kAnswer, kAnswerBytes)) return std::nullopt;
  return ParseNumber(text.substr(1));
}

bool IsSameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

}  // namespace dslaunch
