#include "proto/wire/node_list.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

// Maximum number of digits, such that a number is below 2^64 after any count is added.
constexpr uint32_t kMostNumberDigits = 18;
constexpr uint64_t kEndOfNumbers = 1'000'000'000'000'000'000;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

struct Split {
  size_t begin = 0;  // position of the number in the name
  size_t end = 0;
  uint64_t number = 0;
};

// Splits `name` at the number that begins at or contains position `at`. Returns nullopt if there is
// no number at that position, or if the number has too many digits.
std::optional<Split> SplitAt(std::string_view name, size_t at) {
  Split split{at, at};
  while (split.begin > 0 && IsDigit(name[split.begin - 1])) --split.begin;
  while (split.end < name.size() && IsDigit(name[split.end])) ++split.end;
  const size_t digits = split.end - split.begin;
  if (digits == 0 || digits > kMostNumberDigits) return std::nullopt;
  std::from_chars(name.data() + split.begin, name.data() + split.end, split.number);
  return split;
}

uint32_t Clamped(uint64_t sum) {
  return static_cast<uint32_t>(std::min<uint64_t>(sum, UINT32_MAX));
}

// Removes the next text from `texts` and returns it; nullopt if `texts` has no zero byte, which
// terminates each text.
std::optional<std::string> TakeText(std::string_view& texts) {
  const size_t end = texts.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  std::string text(texts.substr(0, end));
  texts.remove_prefix(end + 1);
  return text;
}

Error NotAList() { return {ExitCode::kInternal, "the front end sent no list of nodes"}; }

}  // namespace

std::string NodeTable::Run::NameOf(uint32_t place) const {
  if (digits == 0) return before;
  const std::string text = std::to_string(number + place);
  std::string name = before;
  if (text.size() < digits) name.append(digits - text.size(), '0');
  return name + text + after;
}

// Appends `name` to the run if it is the run's next name, else returns false. The first two names
// of a run determine which number in the name counts up.
bool NodeTable::AppendName(const std::string& name, Run& run) {
  if (run.digits > 0) {
    if (run.NameOf(run.count) != name) return false;
    ++run.count;
    return true;
  }
  const std::string& first = run.before;
  const auto differ = std::ranges::mismatch(first, name);
  const std::optional<Split> split =
      SplitAt(first, static_cast<size_t>(differ.in1 - first.begin()));
  if (!split) return false;
  Run numbered = run;
  numbered.before = first.substr(0, split->begin);
  numbered.number = split->number;
  numbered.digits = static_cast<uint32_t>(split->end - split->begin);
  numbered.after = first.substr(split->end);
  if (numbered.NameOf(1) != name) return false;
  run = std::move(numbered);
  run.count = 2;
  return true;
}

pb::NodeList PackNodes(const std::vector<pb::Node>& nodes) {
  std::vector<NodeTable::Run> runs;
  for (const pb::Node& node : nodes) {
    NodeTable::Run* const last = runs.empty() ? nullptr : &runs.back();
    if (last != nullptr && last->slots == node.slots() && last->spare == node.spare() &&
        NodeTable::AppendName(node.name(), *last))
      continue;
    NodeTable::Run& run = runs.emplace_back();
    run.count = 1;
    run.before = node.name();
    run.slots = node.slots();
    run.spare = node.spare();
  }
  pb::NodeList list;
  for (const NodeTable::Run& run : runs) {
    list.mutable_texts()->append(run.before).push_back('\0');
    list.mutable_texts()->append(run.after).push_back('\0');
    list.add_counts(run.count);
    list.add_numbers(run.number);
    list.add_digits(run.digits);
    list.add_slots(run.slots);
    list.add_spares(run.spare);
  }
  return list;
}

Result<NodeTable> NodeTable::Read(const pb::NodeList& list) {
  const int runs = list.counts_size();
  if (list.numbers_size() != runs || list.digits_size() != runs || list.slots_size() != runs ||
      list.spares_size() != runs)
    return NotAList();
  NodeTable table;
  uint64_t slots = 0;
  uint64_t regular_slots = 0;
  std::string_view texts = list.texts();
  for (int i = 0; i < runs; ++i) {
    std::optional<std::string> before = TakeText(texts);
    std::optional<std::string> after = TakeText(texts);
    Run run = {.first = table.size_,
               .count = list.counts(i),
               .number = list.numbers(i),
               .digits = list.digits(i),
               .slots = list.slots(i),
               .spare = list.spares(i)};
    const bool has_number = run.digits > 0;
    if (!before || !after || run.count == 0 || run.count > kMaxNodesInSet - table.size_ ||
        run.digits > kMostNumberDigits || run.number >= kEndOfNumbers ||
        (!has_number && run.count > 1))
      return NotAList();
    run.before = *std::move(before);
    run.after = *std::move(after);
    table.size_ += run.count;
    const uint64_t of_run = uint64_t{run.count} * run.slots;
    slots += of_run;
    regular_slots += run.spare ? 0 : of_run;
    table.runs_.push_back(std::move(run));
  }
  if (!texts.empty()) return NotAList();
  table.num_slots_ = Clamped(slots);
  table.num_regular_slots_ = Clamped(regular_slots);
  return table;
}

const NodeTable::Run& NodeTable::RunOf(uint32_t index) const {
  return *std::prev(std::ranges::upper_bound(runs_, index, {}, &Run::first));
}

pb::Node NodeTable::At(uint32_t index) const {
  const Run& run = RunOf(index);
  pb::Node node;
  node.set_name(run.NameOf(index - run.first));
  node.set_slots(run.slots);
  node.set_spare(run.spare);
  return node;
}

std::vector<pb::Node> NodeTable::All() const {
  std::vector<pb::Node> nodes;
  nodes.reserve(size_);
  for (uint32_t index = 0; index < size_; ++index) nodes.push_back(At(index));
  return nodes;
}

}  // namespace dslaunch
