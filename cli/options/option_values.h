// Declares readers of the values of options. If a value is not valid, they throw ValidationError,
// whose text begins with the name of the option.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/sanitize.h"
#include "cli/options/options.h"

namespace dslaunch {

// An invalid value of an option. Thrown by readers, and converted to an Error where a table is read
// (option_layers.h, command_parser.h).
class ValidationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string LowerCase(std::string text);

// Returns `path` with a leading "~" or "~USER" replaced by the home folder. A shell does this for
// `--log_dir ~/x`, but not for --log_dir=~/x. Returns `path` unchanged if the home folder is
// unknown. Reads HOME and the system's accounts.
std::string ExpandHome(const std::string& path);

// Returns a hint such as ", did you mean bf16?", or "" if no text in `known` is similar to `text`.
std::string DidYouMean(const std::string& text, const std::vector<std::string>& known);

template <class T>
T ReadWhole(const std::string& option, const std::string& text, T min, T max) {
  T value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    throw ValidationError(option + " must be a whole number from " + std::to_string(min) + " to " +
                          std::to_string(max) + ", not " + Quoted(text));
  }
  return value;
}

template <class T>
T ReadChoice(const std::string& option, const std::string& text,
             const std::vector<std::pair<std::string, T>>& choices) {
  std::string list;
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (LowerCase(text) == LowerCase(name)) return value;
    list += (list.empty() ? "" : ", ") + name;
    names.push_back(name);
  }
  throw ValidationError(option + " must be one of " + list + ", not " + Quoted(text) +
                        DidYouMean(text, names));
}

// Reads a number from `min` to `max`, inclusive.
double ReadNumber(const std::string& option, const std::string& text, double min, double max);

// Returns the number of seconds in a text such as "90", "1.5", "90s", "10m", "10min", "2h", "1d" or
// "1h30m"; nullopt if `text` has none of these forms.
std::optional<double> ParseDuration(std::string_view text);

// Reads seconds, which may have a fraction, from `min_s` to `max_s`. Returns milliseconds.
int64_t ReadSecondsAsMs(const std::string& option, const std::string& text, double min_s,
                        double max_s);

// Reads "all", "none" or a list of global ranks such as "0,3".
ShownRanks ReadRankChoice(const std::string& option, const std::string& text);

// Reads the value of torchrun's --tee or --redirects: a number from 0 to 3, or a list of
// LOCAL_RANK:0..3.
RankStreams ReadStreams(const std::string& option, const std::string& text);

// Reads a list of ranks such as "0,3". Returns the ranks in ascending order without duplicates.
std::vector<int> ReadRanks(const std::string& option, const std::string& text);

// Splits `text` at commas. Empty parts are kept.
std::vector<std::string> ReadList(const std::string& text);

// Splits `text` at commas. A doubled comma is a literal comma, as in torchrun's filters.
std::vector<std::string> ReadFilters(const std::string& text);

// Splits a command at blanks, without the quoting of a shell. Rejects text that needs a shell.
std::vector<std::string> ReadWords(const std::string& option, const std::string& text);

// Checks a list of cores such as "1,3-5" and returns the list unchanged.
std::string ReadCoreList(const std::string& option, const std::string& text);

// Checks that `text` is NAME=VALUE or NAME and returns it unchanged.
std::string ReadVariable(const std::string& option, const std::string& text);

// Checks torchrun's list of signals to handle. The list has no effect, because dslaunch always
// handles these signals.
void CheckSignals(const std::string& option, const std::string& text);

// An endpoint as typed by the user: HOST, HOST:PORT or [ADDRESS]:PORT.
struct Endpoint {
  std::string host;  // host name or address, IPv6 without brackets
  std::optional<int> port;
};

// Reads an endpoint. Throws ValidationError if `text` has another form or the port is not valid.
Endpoint ReadEndpoint(const std::string& option, const std::string& text);

// The values of torchrun's --rdzv_conf for the keys that dslaunch supports. Other keys are rejected
// by name.
struct RdzvConf {
  std::optional<int64_t> join_timeout_ms;
  std::optional<int64_t> last_call_ms;
  std::optional<int64_t> keep_alive_ms;
  std::optional<int> keep_alive_attempts;
  std::optional<bool> is_host;
};
RdzvConf ReadRdzvConf(const std::string& option, const std::string& text);

// A number or range of nodes as typed by the user: N or MIN:MAX, as in torchrun's --nnodes.
struct NodeRange {
  int min = 0;
  std::optional<int> max;  // largest number of nodes; nullopt for a single number N
};
NodeRange ReadNodes(const std::string& option, const std::string& text);

inline constexpr int kMaxNodes = 1'000'000;

// Returns whether `text` is a list of hosts as in horovodrun's -H, such as "w0:2,w1:4", rather than
// a path: its first part ends with a colon and a number.
bool LooksLikeHosts(std::string_view text);
// Converts "NAME[:SLOTS],..." to the lines of a hostfile, with 1 slot by default. Rejects names
// that are not valid in a hostfile.
std::string ReadHosts(const std::string& option, const std::string& text);

}  // namespace dslaunch
