#include "agent/flight/flight_record.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/pickle/pickle.h"
#include "base/text/sanitize.h"
#include "proto/wire/rank_stacks.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxValues = 2'000'000;  // 10 times the values of 2,000 operations with frames
constexpr size_t kMaxMembers = 1 << 17;   // limit of the total number of ranks in all groups

Error NotRead(const std::string& problem) {
  return Error{ExitCode::kBadInput, "the dump of Flight Recorder " + problem};
}

std::string CutText(std::string_view text) {
  std::string clean = SanitizeForTerminal(text.substr(0, kMaxStackTextBytes));
  if (clean.size() > kMaxStackTextBytes) clean.resize(kMaxStackTextBytes);
  return clean;
}

std::string TextOf(const PickleValue& holder, std::string_view key) {
  const std::optional<PickleValue> value = holder.Find(key);
  const auto text = value ? value->String() : std::nullopt;
  return text ? CutText(*text) : "";
}

int64_t NumberOf(const PickleValue& holder, std::string_view key) {
  const std::optional<PickleValue> value = holder.Find(key);
  return (value ? value->Int() : std::nullopt).value_or(0);
}

bool IsTrue(const PickleValue& holder, std::string_view key) {
  const std::optional<PickleValue> value = holder.Find(key);
  return (value ? value->Bool() : std::nullopt).value_or(false);
}

// Appends numbers, texts and lists to `text`, with lists in the form in which Python prints them.
// Stops at kMaxStackTextBytes.
void AppendList(const PickleValue& value, int depth, std::string& text) {
  constexpr int kMaxDepth = 4;
  if (text.size() >= kMaxStackTextBytes) return;
  if (const auto number = value.Int()) {
    text += std::to_string(*number);
  } else if (const auto word = value.String()) {
    text += CutText(*word);
  } else if ((value.type() == PickleType::kList || value.type() == PickleType::kTuple) &&
             depth < kMaxDepth) {
    text += '[';
    for (size_t i = 0; i < value.size() && text.size() < kMaxStackTextBytes; ++i) {
      if (i > 0) text += ", ";
      AppendList(value.item(i), depth + 1, text);
    }
    text += ']';
  }
}

std::string ListOf(const PickleValue& holder, std::string_view key) {
  std::string text;
  if (const auto value = holder.Find(key)) AppendList(*value, 0, text);
  if (text.size() > kMaxStackTextBytes) text.resize(kMaxStackTextBytes);
  return text;
}

// Adds the ranks in a list such as "[0, 1, 4]" to the group.
void ReadRanks(std::string_view text, size_t& members, pb::FlightGroup& group) {
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  while (next != end && members < kMaxMembers) {
    uint32_t rank = 0;
    const auto [stop, status] = std::from_chars(next, end, rank);
    if (status == std::errc()) {
      group.add_ranks(rank);
      ++members;
      next = stop;
    } else {
      ++next;
    }
  }
}

void AddFrames(const PickleValue& entry, pb::FlightOperation& operation) {
  const std::optional<PickleValue> frames = entry.Find("frames");
  if (!frames || frames->type() != PickleType::kList) return;
  for (size_t i = 0; i < frames->size() && operation.frames_size() < kMaxFlightFrames; ++i) {
    const PickleValue frame = frames->item(i);
    pb::StackFrame& added = *operation.add_frames();
    added.set_function(TextOf(frame, "name"));
    // Paths of source files often differ only at the end, so a long path is cut at its beginning.
    const std::optional<PickleValue> file = frame.Find("filename");
    const std::string_view path = (file ? file->String() : std::nullopt).value_or("");
    added.set_file(CutText(path.substr(path.size() - std::min(path.size(), kMaxStackTextBytes))));
    constexpr int64_t kMaxLine = 10'000'000;
    added.set_line(static_cast<int>(std::clamp<int64_t>(NumberOf(frame, "line"), 0, kMaxLine)));
  }
}

// Counts the operation, and adds it to its group unless the operation is completed.
void AddOperation(const PickleValue& entry, pb::FlightGroup& group) {
  const uint64_t number =
      static_cast<uint64_t>(std::max<int64_t>(0, NumberOf(entry, "collective_seq_id")));
  const bool is_p2p = IsTrue(entry, "is_p2p");
  if (!is_p2p) group.set_enqueued(std::max(group.enqueued(), number));
  const std::string state = TextOf(entry, "state");
  if (IsTrue(entry, "retired") || state == "completed") return;
  if (group.operations_size() >= kMaxFlightOperations) return;
  const std::string name = TextOf(entry, "profiling_name");  // value such as "nccl:all_reduce"
  pb::FlightOperation& operation = *group.add_operations();
  operation.set_number(number);
  operation.set_name(name.substr(name.find(':') + 1));
  operation.set_input_sizes(ListOf(entry, "input_sizes"));
  operation.set_output_sizes(ListOf(entry, "output_sizes"));
  operation.set_dtypes(ListOf(entry, "input_dtypes"));
  operation.set_state(state);
  operation.set_is_p2p(is_p2p);
  AddFrames(entry, operation);
}

// Returns the group of an entry. Adds the group to the record if it is new. Returns nullptr if the
// entry names no group, or if the limit of groups is reached.
pb::FlightGroup* GroupOf(const PickleValue& entry, const std::optional<PickleValue>& config,
                         size_t& members, pb::FlightRecord& record) {
  const std::optional<PickleValue> group = entry.Find("process_group");
  if (!group || group->has_entries() || group->size() != 2) return nullptr;
  const std::optional<std::string_view> name = group->item(0).String();
  if (!name) return nullptr;
  const std::string cut = CutText(*name);
  const auto same = std::ranges::find(*record.mutable_groups(), cut, &pb::FlightGroup::name);
  if (same != record.mutable_groups()->end()) return &*same;
  if (record.groups_size() == kMaxFlightGroups) return nullptr;
  pb::FlightGroup& added = *record.add_groups();
  added.set_name(cut);
  added.set_description(CutText(group->item(1).String().value_or("")));
  const std::optional<PickleValue> own = config ? config->Find(*name) : std::nullopt;
  const std::optional<PickleValue> ranks = own ? own->Find("ranks") : std::nullopt;
  if (const auto text = ranks ? ranks->String() : std::nullopt) ReadRanks(*text, members, added);
  return &added;
}

}  // namespace

Result<pb::FlightRecord> ReadFlightRecord(std::string_view dump) {
  DSL_TRY_ASSIGN(const Pickle pickle,
                 Pickle::Read(dump, "dump of Flight Recorder",
                              {.bytes = kMaxFlightDumpBytes, .values = kMaxValues, .depth = 20}));
  const PickleValue root = pickle.root();
  const std::optional<PickleValue> version = root.Find("version");
  const auto text = version ? version->String() : std::nullopt;
  if (!text) return NotRead("has no version");
  if (!text->starts_with("2."))
    return NotRead("has version " + CutText(*text) + ", which is not known");
  const std::optional<PickleValue> entries = root.Find("entries");
  if (!entries || entries->type() != PickleType::kList) return NotRead("has no entries");
  const std::optional<PickleValue> config = root.Find("pg_config");
  pb::FlightRecord record;
  record.set_whole(entries->size() == 0 || NumberOf(entries->item(0), "record_id") == 0);
  size_t members = 0;
  for (size_t i = 0; i < entries->size(); ++i) {
    const PickleValue entry = entries->item(i);
    if (record.groups_size() == kMaxFlightGroups) record.set_whole(false);
    if (pb::FlightGroup* group = GroupOf(entry, config, members, record))
      AddOperation(entry, *group);
  }
  CutFlightRecord(record);
  return record;
}

}  // namespace dslaunch
