#include "trainer/config/json/key_record.h"

#include <cstdio>
#include <limits>
#include <utility>

namespace dslaunch {
namespace {

thread_local KeyRecord* current = nullptr;

// Largest bound that docs/reference mentions. Larger bounds exist only to keep sums from
// overflowing.
constexpr int64_t kMostShown = int64_t{1} << 31;

std::string Printed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::string Bounded(const std::string& what, const std::optional<std::string>& min,
                    const std::optional<std::string>& max) {
  if (min && max) return what + " from " + *min + " to " + *max;
  if (min) return what + ", at least " + *min;
  return max ? what + ", at most " + *max : what;
}

// Removes numbers in brackets from a path: "groups[2].lr" becomes "groups[].lr".
std::string WithoutIndexes(const std::string& path) {
  std::string text;
  bool inside = false;
  for (const char c : path) {
    if (c == ']') inside = false;
    if (!inside) text += c;
    if (c == '[') inside = true;
  }
  return text;
}

}  // namespace

KeyRecord::KeyRecord() { current = this; }

KeyRecord::~KeyRecord() { current = nullptr; }

KeyRecord* KeyRecord::Current() { return current; }

void KeyRecord::Note(const std::string& path, std::string value, std::string refusal,
                     std::string schema) {
  uses_.push_back({WithoutIndexes(path), std::move(value), std::move(refusal), std::move(schema)});
}

void ExplainLastKey(const char* meaning) {
  if (current != nullptr) current->Explain(meaning);
}

std::string WholeNumberText(int64_t min, int64_t max) {
  using Limits = std::numeric_limits<int64_t>;
  std::optional<std::string> least, most;
  if (min != Limits::min()) least = std::to_string(min);
  if (max < kMostShown) most = std::to_string(max);
  return Bounded("whole number", least, most);
}

std::string NumberText(double min, double max) {
  std::optional<std::string> most;
  if (max < static_cast<double>(kMostShown)) most = Printed(max);
  return Bounded("number", Printed(min), most);
}

}  // namespace dslaunch
