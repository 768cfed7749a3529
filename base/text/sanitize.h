// Text from programs, before it goes to a terminal or into a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// `line` without what could steer a terminal: escape sequences (ECMA-48, with the strings of OSC,
// DCS, SOS, PM and APC) and control characters go (U+0000 to U+001F but tabs, U+007F to U+009F),
// and so do invisible characters, which make text read otherwise than it is written or look
// like another (bidirectional marks, embeddings, overrides and isolates, zero-width spaces and
// joiners, fillers, tags, the separators U+2028 and U+2029). Bytes that are no UTF-8 become U+FFFD.
std::string SanitizeForTerminal(std::string_view line);

// The same, but colours and other looks of text stay (SGR, as ECMA-48 has it), and end with the
// line.
std::string SanitizeKeepingColors(std::string_view line);

// A message that may have several lines, each SanitizeForTerminal. All but the first begin with two
// blanks, so that no text from elsewhere can look like a message of its own. No newline at the end.
std::string SanitizeMessage(std::string_view text);

// `line` without escape sequences. All other bytes stay as they are, UTF-8 or not.
std::string WithoutEscapes(std::string_view line);

// `text` for a message: harmless, and with "..." for what lies beyond `max_bytes`.
inline constexpr size_t kMaxTruncatedBytes = 300;
std::string Truncate(std::string_view text, size_t max_bytes = kMaxTruncatedBytes);

// The same in quotes.
std::string Quoted(std::string_view text);

// `text` as a shell takes it for one word, but never more than one line.
std::string ShellWord(std::string_view text);

// `words` as a user can type them into a shell.
std::string CommandLine(const std::vector<std::string>& words);

}  // namespace dslaunch
