#include "hostfiles/hostfile.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text/sanitize.h"
#include "base/unique_fd.h"
#include "hostfiles/host_words.h"
#include "hostfiles/hostfile_yaml.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxShownBytes = 60;  // most bytes of a name that a hint shows
constexpr std::string_view kSlotsKey = "slots=";

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// Removes the first line from `text` and returns it without its line ending.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

// Removes the next blank-separated word from `rest` and returns the word; empty at the end.
std::string_view TakeWord(std::string_view& rest) {
  while (!rest.empty() && IsBlank(rest.front())) rest.remove_prefix(1);
  const size_t size =
      static_cast<size_t>(std::find_if(rest.begin(), rest.end(), IsBlank) - rest.begin());
  const std::string_view word = rest.substr(0, size);
  rest.remove_prefix(size);
  return word;
}

Result<int> ParseSlots(std::string_view word, std::string_view name, const Place& place) {
  const std::string hint =
      "write '" + std::string(name.substr(0, kMaxShownBytes)) + " slots=N', N ranks (GPUs)";
  if (word.empty()) return place.Bad(name, "no slots given; " + hint);
  if (word.substr(0, kSlotsKey.size()) != kSlotsKey) {
    return place.Bad(word, "not slots=N; " + hint + ", without blanks around '='");
  }
  return ParseSlotCount(word.substr(kSlotsKey.size()), word, place);
}

Result<bool> ParseSpare(std::string_view word, const Place& place) {
  if (word.empty() || word == "spare=false") return false;
  if (word == "spare=true") return true;
  if (word.substr(0, word.find('=')) == "spare") {
    return place.Bad(word,
                     "spare must be true or false; write spare=true for a node that gets "
                     "ranks only in place of a lost one");
  }
  return place.Bad(word, "nothing may follow slots=N but spare=true and a '# comment'; remove it");
}

// Parses a line of a hostfile. Returns a host with an empty name if the line has no node.
Result<Host> ParseLine(std::string_view line, const Place& place) {
  if (line.size() > kMaxHostLineBytes) {
    return place.Bad(line, "longer than " + std::to_string(kMaxHostLineBytes) +
                               " bytes; one node a line, NAME slots=N");
  }
  line = line.substr(0, line.find('#'));
  const auto control = std::find_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
  });
  if (control != line.end()) {
    return place.Bad(line, "control character; a hostfile is plain text, NAME slots=N a line");
  }
  Host host;
  host.line = place.line;
  const std::string_view name = TakeWord(line);
  if (name.empty()) return host;
  DSL_TRY(ParseHostName(name, place, host));
  DSL_TRY_ASSIGN(host.slots, ParseSlots(TakeWord(line), name, place));
  DSL_TRY_ASSIGN(host.spare, ParseSpare(TakeWord(line), place));
  const std::string_view junk = TakeWord(line);
  if (!junk.empty()) return place.Bad(junk, "nothing may follow but a '# comment'; remove it");
  return host;
}

Error CannotRead(const std::string& path, int error_number) {
  return {ExitCode::kBadInput,
          Truncate(path) + ": cannot read the hostfile: " + std::strerror(error_number) +
              "; give an existing file with a line 'NAME slots=N' for each node"};
}

}  // namespace

Result<std::vector<Host>> ParseHostfile(std::string_view text, const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  if (IsYamlHostfile(text, path)) return ParseYamlHostfile(text, path);
  HostList hosts;
  for (int number = 1; !text.empty(); ++number) {
    const Place place{path, number};
    DSL_TRY_ASSIGN(Host host, ParseLine(TakeLine(text), place));
    if (!host.name.empty()) DSL_TRY(hosts.Add(std::move(host), place));
  }
  return hosts.Take(path, "write a line 'NAME slots=N' for each node");
}

Result<std::vector<Host>> ReadHostfile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return CannotRead(path, errno);
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(path, errno);
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMaxHostfileBytes) {
      return Error{ExitCode::kBadInput,
                   Truncate(path) + ": larger than 16 MiB; this is not a hostfile"};
    }
  }
  return ParseHostfile(text, Truncate(path));
}

}  // namespace dslaunch
