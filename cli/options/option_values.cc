#include "cli/options/option_values.h"

#include <pwd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/text/suggest.h"
#include "cli/plan/secrets.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {
namespace {

constexpr int kMaxRank = (1 << 24) - 1;
constexpr int kMaxCore = (1 << 20) - 1;

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, std::abs(value) >= 1e5 ? "%.0f" : "%g", value);
  return text;
}

double ReadDouble(const std::string& option, const char* what, const std::string& text, double min,
                  double max) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() ||
      !(value >= min && value <= max)) {
    throw ValidationError(option + " must be " + what + " " + Number(min) + " to " + Number(max) +
                          ", not " + Quoted(text));
  }
  return value;
}

// Splits `text` at each character of `separators`. Empty parts are kept.
std::vector<std::string> Split(const std::string& text, const char* separators) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find_first_of(separators, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    if (end == text.size()) return parts;
    begin = end + 1;
  }
}

std::string Trimmed(const std::string& text) {
  constexpr char kBlanks[] = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

bool ReadBool(const std::string& option, const std::string& text) {
  return ReadChoice<bool>(option, text,
                          {{"true", true},
                           {"false", false},
                           {"1", true},
                           {"0", false},
                           {"yes", true},
                           {"no", false},
                           {"y", true},
                           {"n", false},
                           {"t", true},
                           {"f", false}});
}

// A key of torchrun's rendezvous without an equivalent in dslaunch. A key with a default is
// accepted with that value, which has no effect.
struct IdleKey {
  const char* key;
  const char* only;  // the only accepted value, torchrun's default; null if no value is accepted
  const char* why;
};

constexpr IdleKey kIdleKeys[] = {
    {"close_timeout", "30", "a job ends when every node has confirmed its teardown or is lost"},
    {"heartbeat_timeout", "5", "--dead_s sets how long a node may send no heartbeat"},
    {"read_timeout", "60", "no store is read; --dead_s sets how long a node may send no heartbeat"},
    {"store_type", "tcp", "the rendezvous uses the network only"},
    {"rank", nullptr, "--node_rank sets it"},
    {"protocol", nullptr, "it is an option of etcd, which is not used"},
    {"cacert", nullptr, "it is an option of etcd, which is not used; nodes already use mutual TLS"},
    {"cert", nullptr, "it is an option of etcd, which is not used; nodes already use mutual TLS"},
    {"key", nullptr, "it is an option of etcd, which is not used; nodes already use mutual TLS"},
};

void ReadRdzvKey(const std::string& option, const std::string& key, const std::string& name,
                 const std::string& value, RdzvConf& conf) {
  constexpr int kDayS = 86'400;
  if (key == "join_timeout" || key == "timeout") {
    conf.join_timeout_ms = int64_t{1000} * ReadWhole<int>(name, value, 1, 7 * kDayS);
  } else if (key == "last_call_timeout") {
    conf.last_call_ms = int64_t{1000} * ReadWhole<int>(name, value, 0, 7 * kDayS);
  } else if (key == "keep_alive_interval") {
    conf.keep_alive_ms = int64_t{1000} * ReadWhole<int>(name, value, 1, kDayS);
  } else if (key == "keep_alive_max_attempt") {
    conf.keep_alive_attempts = ReadWhole<int>(name, value, 2, 1000);
  } else if (key == "is_host") {
    conf.is_host = ReadBool(name, value);
  } else {
    std::vector<std::string> known = {"join_timeout",           "timeout",
                                      "last_call_timeout",      "keep_alive_interval",
                                      "keep_alive_max_attempt", "is_host"};
    for (const IdleKey& idle : kIdleKeys) {
      if (key == idle.key && idle.only != nullptr && value == idle.only) return;
      if (key == idle.key) {
        throw ValidationError(name + " is not supported: " + idle.why + "; leave it out");
      }
      known.push_back(idle.key);
    }
    const std::string near = Nearest(key, known);
    throw ValidationError(option + ": unknown key " + Quoted(key) +
                          (near.empty() ? "; leave it out" : ", did you mean " + near + "?"));
  }
}

}  // namespace

std::string ExpandHome(const std::string& path) {
  if (!path.starts_with('~')) return path;
  const size_t end = std::min(path.find('/'), path.size());
  const std::string user = path.substr(1, end - 1);
  const char* home = std::getenv("HOME");
  if (!user.empty()) {
    const passwd* const account = ::getpwnam(user.c_str());
    home = account == nullptr ? nullptr : account->pw_dir;
  }
  return home == nullptr || *home == '\0' ? path : home + path.substr(end);
}

std::string LowerCase(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string DidYouMean(const std::string& text, const std::vector<std::string>& known) {
  const std::string near = Nearest(text, known);
  return near.empty() ? "" : ", did you mean " + near + "?";
}

double ReadNumber(const std::string& option, const std::string& text, double min, double max) {
  return ReadDouble(option, "a number,", text, min, max);
}

std::optional<double> ParseDuration(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"s", 1}, {"min", 60}, {"m", 60}, {"h", 3600}, {"d", 86'400}};
  double seconds = 0;
  for (const bool is_bare = text.find_first_not_of("0123456789.+-e") == text.npos; !text.empty();) {
    double value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (is_bare) return text.empty() ? std::optional(value) : std::nullopt;
    const auto unit = std::ranges::find_if(
        kUnits, [&](const auto& known) { return text.starts_with(known.first); });
    if (unit == std::end(kUnits)) return std::nullopt;
    text.remove_prefix(unit->first.size());
    seconds += value * unit->second;
  }
  return seconds;
}

int64_t ReadSecondsAsMs(const std::string& option, const std::string& text, double min_s,
                        double max_s) {
  const std::optional<double> seconds = text.empty() ? std::nullopt : ParseDuration(text);
  if (!seconds || !(*seconds >= min_s && *seconds <= max_s)) {
    throw ValidationError(option + " must be seconds, " + Number(min_s) + " to " + Number(max_s) +
                          ", or a time such as 90s, 10m, 2h or 1d, not " + Quoted(text));
  }
  return std::llround(*seconds * 1000);
}

ShownRanks ReadRankChoice(const std::string& option, const std::string& text) {
  if (text == "all") return {true, {}};
  if (text == "none") return {false, {}};
  if (text.empty() || text.back() == ',') {
    throw ValidationError(option + " must be all, none or ranks such as 0,3, not " + Quoted(text));
  }
  return {false, ReadRanks(option, text)};
}

RankStreams ReadStreams(const std::string& option, const std::string& text) {
  const auto streams = [&](const std::string& word) {
    if (word.size() != 1 || word[0] < '0' || word[0] > '3') {
      throw ValidationError(option +
                            " must be 0 (no stream), 1 (stdout), 2 (stderr) or 3 (both), or "
                            "such for local ranks, as 0:3,1:1, not " +
                            Quoted(text));
    }
    return static_cast<unsigned>(word[0] - '0');
  };
  if (text.find(':') == std::string::npos) return {streams(text), {}};
  RankStreams result;
  for (const std::string& item : Split(text, ",")) {
    const size_t colon = std::min(item.find(':'), item.size());
    const int rank =
        ReadWhole<int>(option + ": each local rank", item.substr(0, colon), 0, kMaxRank);
    result.of_local_rank[rank] = streams(item.substr(std::min(colon + 1, item.size())));
  }
  return result;
}

std::vector<int> ReadRanks(const std::string& option, const std::string& text) {
  std::vector<int> ranks;
  for (const std::string& rank : Split(text, ",")) {
    ranks.push_back(ReadWhole<int>(option + ": each rank", rank, 0, kMaxRank));
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<std::string> ReadList(const std::string& text) { return Split(text, ","); }

bool LooksLikeHosts(std::string_view text) {
  const std::string_view first = text.substr(0, text.find(','));
  const size_t colon = first.rfind(':');
  return text.find('/') == std::string_view::npos && colon != std::string_view::npos && colon > 0 &&
         colon + 1 < first.size() &&
         first.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
}

std::string ReadHosts(const std::string& option, const std::string& text) {
  std::string lines;
  for (const std::string& host : ReadList(text)) {
    const size_t colon = std::min(host.rfind(':'), host.size());
    const std::string name = host.substr(0, colon);
    if (name.empty() || name.find_first_of(" \t\n#") != std::string::npos) {
      throw ValidationError(option + " " + Quoted(text) +
                            ": each node is NAME or NAME:SLOTS, with commas between them");
    }
    const int slots =
        colon == host.size() ? 1 : ReadWhole<int>(option, host.substr(colon + 1), 1, kMaxSlots);
    lines += name + " slots=" + std::to_string(slots) + "\n";
  }
  return lines;
}

std::vector<std::string> ReadFilters(const std::string& text) {
  std::vector<std::string> filters(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',' && text.compare(i, 2, ",,") != 0) {
      filters.emplace_back();
      continue;
    }
    i += text[i] == ',';
    filters.back() += text[i];
  }
  std::erase(filters, "");
  return filters;
}

std::vector<std::string> ReadWords(const std::string& option, const std::string& text) {
  if (text.find_first_of("'\"\\`$|;&<>") != std::string::npos) {
    throw ValidationError(option +
                          " is split at blanks, without a shell; put what needs quotes or "
                          "a shell into ssh_config, instead of " +
                          Quoted(MaskedText(text)));
  }
  std::vector<std::string> words = Split(text, " \t\n");
  std::erase(words, "");
  return words;
}

std::string ReadCoreList(const std::string& option, const std::string& text) {
  for (const std::string& range : Split(text, ",")) {
    const size_t dash = std::min(range.find('-'), range.size());
    const std::string what = option + ": each core of a list such as 0,4-7";
    const int first = ReadWhole<int>(what, range.substr(0, dash), 0, kMaxCore);
    if (dash == range.size()) continue;
    if (ReadWhole<int>(what, range.substr(dash + 1), 0, kMaxCore) < first) {
      throw ValidationError(option + ": the range " + Quoted(range) +
                            " ends before it begins; turn it around");
    }
  }
  return text;
}

std::string ReadVariable(const std::string& option, const std::string& text) {
  const size_t equals = text.find('=');
  const bool is_name =
      std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  // The value may be a secret, so the message does not quote it.
  if (text.empty() || equals == 0 || (equals == std::string::npos && !is_name)) {
    throw ValidationError(option +
                          " must be NAME=VALUE, or NAME for a variable of this environment");
  }
  return text;
}

void CheckSignals(const std::string& option, const std::string& text) {
  const std::vector<std::string> handled = {"SIGTERM", "SIGINT",  "SIGHUP", "SIGQUIT",
                                            "SIGXCPU", "SIGUSR1", "SIGUSR2"};
  for (const std::string& name : Split(text, ",")) {
    if (std::find(handled.begin(), handled.end(), name) != handled.end()) continue;
    const std::string near = Nearest(name, handled);
    throw ValidationError(option + ": " + Quoted(name) +
                          " is not handled; dslaunch ends the job on SIGTERM, SIGINT, SIGHUP and "
                          "SIGXCPU, shows where its ranks are on SIGQUIT, and hands SIGUSR1 and "
                          "SIGUSR2 on to the ranks" +
                          (near.empty() ? "" : ", did you mean " + near + "?"));
  }
}

Endpoint ReadEndpoint(const std::string& option, const std::string& text) {
  const auto refuse = [&] {
    throw ValidationError(option + " must be HOST:PORT, such as node1:29400 or [fe80::1]:0, " +
                          "not " + Quoted(text));
  };
  Endpoint endpoint;
  const bool bracket = text.starts_with('[');
  const size_t host_end = bracket ? text.find(']') : std::min(text.rfind(':'), text.size());
  if (host_end == std::string::npos) refuse();
  endpoint.host = text.substr(bracket ? 1 : 0, host_end - (bracket ? 1 : 0));
  const std::string rest = text.substr(bracket ? host_end + 1 : host_end);
  const auto is_part_of_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' ||
           c == ':' || c == '%';
  };
  if (endpoint.host.empty() || !std::ranges::all_of(endpoint.host, is_part_of_name) ||
      (!bracket && endpoint.host.find(':') != std::string::npos) ||
      (!rest.empty() && rest[0] != ':')) {
    refuse();
  }
  if (!rest.empty()) {
    endpoint.port = ReadWhole<int>(option + ": the port", rest.substr(1), 0, 65'535);
  }
  return endpoint;
}

RdzvConf ReadRdzvConf(const std::string& option, const std::string& text) {
  RdzvConf conf;
  for (const std::string& item : Split(text, ",")) {
    const size_t equals = std::min(item.find('='), item.size());
    std::string key = Trimmed(item.substr(0, equals));
    const std::string value = Trimmed(item.substr(std::min(equals + 1, item.size())));
    const std::string name = option + ": " + Truncate(key);
    if (key.empty() || value.empty()) {
      throw ValidationError(option + " must be KEY=VALUE,..., such as join_timeout=900, not " +
                            Quoted(text));
    }
    ReadRdzvKey(option, key, name, value, conf);
  }
  return conf;
}

NodeRange ReadNodes(const std::string& option, const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) {
    return {ReadWhole<int>(option, text, 1, kMaxNodes), std::nullopt};
  }
  const std::string each = option + " MIN:MAX: each of them";
  const NodeRange range{ReadWhole<int>(each, text.substr(0, colon), 1, kMaxNodes),
                        ReadWhole<int>(each, text.substr(colon + 1), 1, kMaxNodes)};
  if (range.min > *range.max) {
    throw ValidationError(option + " MIN:MAX: MIN must not be more than MAX, as in " +
                          Quoted(text));
  }
  return range;
}

}  // namespace dslaunch
