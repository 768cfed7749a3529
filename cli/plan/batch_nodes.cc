#include "cli/plan/batch_nodes.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/text/sanitize.h"
#include "base/text/split_lines.h"
#include "hostfiles/host_words.h"

namespace dslaunch {
namespace {

constexpr std::string_view kBlanks = " \t\r";

// Removes the next word from `text` and returns it. Words are separated by blanks, tabs and
// carriage returns.
std::string_view TakeField(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

// Collects nodes in the order in which the list first names them. A node may be named several
// times.
class NodeCounter {
 public:
  explicit NodeCounter(const std::string& source) : source_(source) {}

  Result<void> Add(std::string_view name, int slots, int line) {
    const auto [found, is_new] = index_of_.try_emplace(std::string(name), hosts_.size());
    if (is_new) {
      Host host;
      host.line = line;
      DSL_TRY(ParseHostName(name, Place{source_, line}, host));
      hosts_.push_back(std::move(host));
    }
    Host& host = hosts_[found->second];
    host.slots = std::min(host.slots + slots, kMaxSlots);
    return {};
  }

  Result<std::vector<Host>> Take() {
    if (hosts_.empty()) return Error{ExitCode::kBadInput, source_ + ": it names no node"};
    for (size_t i = 0; i < hosts_.size(); ++i) hosts_[i].index = i;
    return std::move(hosts_);
  }

 private:
  const std::string& source_;
  std::vector<Host> hosts_;
  std::unordered_map<std::string, size_t> index_of_;
};

// Returns the pairs of LSB_MCPU_HOSTS ("n1 4 n2 4") with each node on a line of its own.
std::string AsLines(std::string_view pairs) {
  std::string lines;
  while (true) {
    const std::string_view name = TakeField(pairs);
    if (name.empty()) return lines;
    lines += std::string(name) + " " + std::string(TakeField(pairs)) + "\n";
  }
}

bool IsSet(const GetVariable& getenv, const char* name) {
  const char* const value = getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

Result<std::vector<Host>> ParseSlotLines(std::string_view text, const std::string& source) {
  NodeCounter nodes(source);
  int line = 0;
  for (std::string_view words : SplitLines(text)) {
    ++line;
    const std::string_view name = TakeField(words);
    if (!name.empty()) DSL_TRY(nodes.Add(name, 1, line));
  }
  return nodes.Take();
}

Result<std::vector<Host>> ParseSlotCounts(std::string_view text, const std::string& source) {
  NodeCounter nodes(source);
  int line = 0;
  for (std::string_view words : SplitLines(text)) {
    ++line;
    const std::string_view name = TakeField(words);
    if (name.empty()) continue;
    const std::string_view count = TakeField(words);
    DSL_TRY_ASSIGN(const int slots, ParseSlotCount(count, count, Place{source, line}));
    DSL_TRY(nodes.Add(name, slots, line));
  }
  return nodes.Take();
}

std::optional<BatchNodes> ReadBatchNodes(const GetVariable& getenv, const ReadTextAt& read) {
  // Each process that mpirun or dslaunch started would start the whole job, so the list is ignored
  // in such a process.
  for (const char* of_many : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "DSLAUNCH_JOB_ID"}) {
    if (IsSet(getenv, of_many)) return std::nullopt;
  }
  struct Source {
    const char* variable;
    Result<std::vector<Host>> (*parse)(std::string_view text, const std::string& source);
    bool is_path;
  };
  for (const Source& source : {Source{"PBS_NODEFILE", ParseSlotLines, true},
                               Source{"LSB_DJOB_HOSTFILE", ParseSlotLines, true},
                               Source{"LSB_MCPU_HOSTS", ParseSlotCounts, false},
                               Source{"PE_HOSTFILE", ParseSlotCounts, true}}) {
    if (!IsSet(getenv, source.variable)) continue;
    BatchNodes nodes;
    nodes.variable = source.variable;
    const std::string value = getenv(source.variable);
    const Result<std::string> text = source.is_path ? read(value) : AsLines(value);
    Result<std::vector<Host>> hosts =
        text.ok() ? source.parse(*text, source.is_path ? Truncate(value) : source.variable)
                  : text.error();
    if (hosts.ok())
      nodes.hosts = *std::move(hosts);
    else
      nodes.unusable = hosts.error().message;
    return nodes;
  }
  return std::nullopt;
}

}  // namespace dslaunch
