// Makes untrusted text safe to print on terminals and in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Returns `line` without everything that could control a terminal: escape sequences (ECMA-48,
// including the strings of OSC, DCS, SOS, PM and APC) and control characters (U+0000 to U+001F
// except tabs, U+007F to U+009F). Also removes invisible characters, which change how text reads or
// make it look like other text (bidirectional marks, embeddings, overrides and isolates, zero-width
// spaces and joiners, fillers, tags, the separators U+2028 and U+2029). Bytes that are not valid
// UTF-8 become U+FFFD.
std::string SanitizeForTerminal(std::string_view line);

// Returns `line` sanitized as by SanitizeForTerminal(), but with colors and text attributes (SGR of
// ECMA-48), which are reset at the end of the line.
std::string SanitizeKeepingColors(std::string_view line);

// Returns a message with each line sanitized. Indents all lines but the first by two blanks, so
// that text from other sources cannot look like a separate message. The result has no final
// newline.
std::string SanitizeMessage(std::string_view text);

// Returns `line` without escape sequences. Keeps all other bytes, whether UTF-8 or not.
std::string WithoutEscapes(std::string_view line);

// Returns whether the whole text is valid UTF-8.
bool IsUtf8(std::string_view text);

// Default limit of Truncate(), in bytes.
inline constexpr size_t kMaxTruncatedBytes = 300;

// Returns `text` sanitized for a message. If it exceeds `max_bytes`, cuts it and appends "...",
// which the limit does not include.
std::string Truncate(std::string_view text, size_t max_bytes = kMaxTruncatedBytes);

// Returns Truncate(text) in single quotes.
std::string Quoted(std::string_view text);

// Returns `text` as one word for a shell, quoted if necessary. The result is always a single line.
std::string ShellWord(std::string_view text);

// Returns `words` as a command line that a user can paste into a shell.
std::string CommandLine(const std::vector<std::string>& words);

}  // namespace dslaunch
