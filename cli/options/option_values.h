// Readers of the values of options. What cannot be understood is thrown as ValidationError, whose
// text begins with the name of the option.
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

// A value that an option does not take. Readers throw it; it is caught where a table is read
// (option_layers.h, command_parser.h) and becomes an Error there.
class ValidationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string LowerCase(std::string text);

// `path` with its leading "~" or "~USER" replaced by that home folder, as a shell does it for a
// word of its own but not in --log_dir=~/x. Unchanged where the home folder is not known. Reads
// HOME and the system's accounts.
std::string ExpandHome(const std::string& path);

// ", did you mean bf16?"; empty where none of `known` is near.
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

double ReadNumber(const std::string& option, const std::string& text, double min, double max);

// The seconds of "90", "1.5", "90s", "10m", "10min", "2h", "1d" or "1h30m"; nullopt: it is none of
// these.
std::optional<double> ParseDuration(std::string_view text);

// Seconds with fractions, `min_s` to `max_s`.
int64_t ReadSecondsAsMs(const std::string& option, const std::string& text, double min_s,
                        double max_s);

// all, none or global ranks such as 0,3.
ShownRanks ReadRankChoice(const std::string& option, const std::string& text);

// torchrun's --tee and --redirects: 0 to 3, or LOCAL_RANK:0..3, ...
RankStreams ReadStreams(const std::string& option, const std::string& text);

// "0,3": ascending, each once.
std::vector<int> ReadRanks(const std::string& option, const std::string& text);

// The texts between commas, empty ones too.
std::vector<std::string> ReadList(const std::string& text);

// Texts between commas; two commas are one that belongs to a text, as in torchrun's filters.
std::vector<std::string> ReadFilters(const std::string& text);

// The words of a command, cut at blanks as no shell does it. What wants a shell is refused.
std::vector<std::string> ReadWords(const std::string& option, const std::string& text);

// "1,3-5": returned as it is.
std::string ReadCoreList(const std::string& option, const std::string& text);

// NAME=VALUE, or NAME alone; returned as it is.
std::string ReadVariable(const std::string& option, const std::string& text);

// Names of signals that dslaunch handles whatever is asked for.
void CheckSignals(const std::string& option, const std::string& text);

// HOST, HOST:PORT or [ADDRESS]:PORT.
struct Endpoint {
  std::string host;  // without brackets
  std::optional<int> port;
};
Endpoint ReadEndpoint(const std::string& option, const std::string& text);

// torchrun's --rdzv_conf: what dslaunch has too. A key that it has not is refused by name.
struct RdzvConf {
  std::optional<int64_t> join_timeout_ms;
  std::optional<int64_t> last_call_ms;
  std::optional<int64_t> keep_alive_ms;
  std::optional<int> keep_alive_attempts;
  std::optional<bool> is_host;
};
RdzvConf ReadRdzvConf(const std::string& option, const std::string& text);

// N or MIN:MAX, as torchrun's --nnodes.
struct NodeRange {
  int min = 0;
  std::optional<int> max;  // nullopt: just N
};
NodeRange ReadNodes(const std::string& option, const std::string& text);

inline constexpr int kMaxNodes = 1'000'000;

// Whether `text` is as horovodrun's -H, "w0:2,w1:4", and no path: its first part ends in a number
// after a colon.
bool LooksLikeHosts(std::string_view text);
// "NAME[:SLOTS],..." as the lines of a hostfile; 1 slot where there is no number. Names are checked
// as those of a hostfile.
std::string ReadHosts(const std::string& option, const std::string& text);

}  // namespace dslaunch
