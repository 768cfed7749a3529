#include "agent/flight/ras_report.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/os/proc_text.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

using nlohmann::json;

constexpr size_t kMaxNameBytes = 64;

// The number of operations of one kind that each rank of a communicator has launched.
struct Counts {
  std::string operation;
  std::map<uint32_t, uint64_t> of_rank;
  uint64_t most = 0;  // largest number, also of ranks that are not listed
};

void Add(const Counts& counts, pb::RasReport& report) {
  if (report.behind_size() > 0 || counts.of_rank.empty()) return;
  const uint64_t least = std::ranges::min_element(counts.of_rank, {}, [](const auto& entry) {
                           return entry.second;
                         })->second;
  if (least >= counts.most) return;
  for (const auto& [rank, count] : counts.of_rank) {
    if (count == least) report.add_behind(rank);
  }
  report.set_operation(SanitizeForTerminal(counts.operation.substr(0, kMaxNameBytes)));
  report.set_behind_count(least);
  report.set_most_count(counts.most);
}

void AddMissing(const std::set<uint32_t>& missing, pb::RasReport& report) {
  for (const uint32_t rank : missing) report.add_missing(rank);
}

// --- Status as JSON (NCCL 2.28 and later) ---

std::optional<uint64_t> NumberAt(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

const json& ListAt(const json& object, const char* key) {
  static const json kNone = json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : kNone;
}

void ReadCommunicator(const json& communicator, uint32_t world_size, pb::RasReport& report) {
  std::map<std::string, Counts> operations;
  for (const json& entry : ListAt(communicator, "ranks")) {
    if (!entry.is_object()) continue;
    const auto rank = NumberAt(entry, "rank");
    const auto counts = entry.find("collective_counts");
    if (!rank || *rank >= world_size || counts == entry.end() || !counts->is_object()) continue;
    for (const auto& [name, count] : counts->items()) {
      if (!count.is_number_unsigned()) continue;
      Counts& operation = operations[name];
      operation.operation = name;
      operation.of_rank[static_cast<uint32_t>(*rank)] = count.get<uint64_t>();
      operation.most = std::max(operation.most, count.get<uint64_t>());
    }
  }
  for (const auto& [name, counts] : operations) Add(counts, report);
  std::set<uint32_t> missing;
  for (const json& entry : ListAt(communicator, "missing_ranks")) {
    const auto rank = entry.is_object() ? NumberAt(entry, "rank") : std::nullopt;
    if (rank && *rank < world_size) missing.insert(static_cast<uint32_t>(*rank));
  }
  if (report.missing_size() == 0) AddMissing(missing, report);
}

// --- Status as text ---

std::optional<uint64_t> TakeCount(std::string_view text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  uint64_t number = 0;
  const char* const begin = text.data() + at + before.size();
  if (std::from_chars(begin, text.data() + text.size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

// Returns the number of launched operations in a line; nullopt if the line contains no such number.
std::optional<uint64_t> LaunchedIn(std::string_view line) {
  if (line.find("not launched any operations") != std::string_view::npos) return 0;
  return TakeCount(line, "launched up to operation ");
}

// Reads the sections of a status as text. Each section has a title such as "#1-0 (27a079b828ff1a75)
// MISMATCH".
class TextReader {
 public:
  TextReader(uint32_t world_size, pb::RasReport& report)
      : world_size_(world_size), report_(report) {}

  void Read(std::string_view text) {
    while (!text.empty()) ReadLine(TakeLine(text));
    EndCounts();
    AddMissing(missing_, report_);
  }

 private:
  void ReadLine(std::string_view line) {
    if (line.starts_with('#')) return BeginSection(line);
    if (!line.starts_with("  ")) section_ = Section::kOther;
    if (section_ == Section::kOther) return ReadRow(line);
    line.remove_prefix(2);
    if (section_ == Section::kMismatch && line.starts_with("Communicator ranks have different "))
      return BeginCounts(line);
    const auto rank = line.starts_with("Rank ") ? TakeCount(line, "Rank ") : std::nullopt;
    if (section_ == Section::kIncomplete) {
      if (rank && *rank < world_size_) missing_.insert(static_cast<uint32_t>(*rank));
      return;
    }
    const std::optional<uint64_t> launched = LaunchedIn(line);
    if (launched) {
      of_next_ = *launched;
      counts_.most = std::max(counts_.most, *launched);
    }
    if (rank && *rank < world_size_) counts_.of_rank[static_cast<uint32_t>(*rank)] = of_next_;
  }

  // Reads a row of the table of communicators: number, communicators, nodes, ranks per node, ranks
  // per communicator. Ignores other lines.
  void ReadRow(std::string_view line) {
    std::vector<std::string_view> words;
    constexpr size_t kColumns = 5;
    while (!line.empty() && words.size() < kColumns) words.push_back(TakeWord(line));
    if (words.size() < kColumns) return;
    const auto group = TakeCount(words.front(), "");
    const auto ranks = TakeCount(words.back(), "");
    if (group && ranks) sizes_[*group] = *ranks;
  }

  void BeginSection(std::string_view line) {
    EndCounts();
    const auto group = TakeCount(line, "#");
    const auto size = group ? sizes_.find(*group) : sizes_.end();
    section_ = Section::kOther;
    if (size == sizes_.end() || size->second != world_size_) return;
    if (line.ends_with("MISMATCH")) section_ = Section::kMismatch;
    if (line.ends_with("INCOMPLETE")) section_ = Section::kIncomplete;
  }

  void BeginCounts(std::string_view line) {
    EndCounts();
    line.remove_prefix(std::string_view("Communicator ranks have different ").size());
    const size_t end = line.find(" operation counts");
    if (end != std::string_view::npos) counts_.operation = line.substr(0, end);
  }

  void EndCounts() {
    if (!counts_.operation.empty()) Add(counts_, report_);
    counts_ = {};
    of_next_ = 0;
  }

  enum class Section { kOther, kMismatch, kIncomplete };
  const uint32_t world_size_;
  pb::RasReport& report_;
  Section section_ = Section::kOther;
  std::map<uint64_t, uint64_t> sizes_;  // ranks per communicator, by group number
  Counts counts_;
  uint64_t of_next_ = 0;  // number of operations of the ranks in the next lines
  std::set<uint32_t> missing_;
};

json ParseJson(std::string_view status) {
  return json::parse(status, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

Result<pb::RasReport> ReadRasReport(std::string_view status, uint32_t world_size) {
  pb::RasReport report;
  if (status.starts_with('{')) {
    const json parsed = ParseJson(status);
    if (!parsed.is_object()) return Error{ExitCode::kBadInput, "NCCL's RAS sent invalid JSON"};
    for (const json& communicator : ListAt(parsed, "communicators")) {
      if (communicator.is_object() && NumberAt(communicator, "size") == world_size)
        ReadCommunicator(communicator, world_size, report);
    }
    return report;
  }
  if (status.find("Communicators...") == std::string_view::npos)
    return Error{ExitCode::kBadInput, "NCCL's RAS sent neither JSON nor a known text"};
  TextReader(world_size, report).Read(status);
  return report;
}

uint64_t DigestOfOperations(std::string_view status) {
  if (!status.starts_with('{')) return 0;
  const json parsed = ParseJson(status);
  if (!parsed.is_object()) return 0;
  std::string counts;
  for (const json& communicator : ListAt(parsed, "communicators")) {
    if (!communicator.is_object()) continue;
    for (const json& entry : ListAt(communicator, "ranks")) {
      if (entry.is_object() && entry.contains("collective_counts"))
        counts += entry["collective_counts"].dump(-1, ' ', true, json::error_handler_t::replace);
    }
  }
  return counts.empty() ? 0 : std::hash<std::string>()(counts) | 1;
}

}  // namespace dslaunch
