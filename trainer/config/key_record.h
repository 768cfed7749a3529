// Records which keys a reader of configurations reads and which values they may have: the source of
// docs/reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// One reading of a key by a getter of JsonObject.
struct KeyUse {
  std::string path;     // "engine.optimizer.params.lr"; items of lists as in "param_groups[].lr"
  std::string value;    // "whole number, at least 1"; empty for a section
  std::string refusal;  // why no other value is accepted; empty: the key is supported
  std::string schema;   // the value as JSON Schema; empty for a section
  std::string meaning = {};  // in words for docs/reference
};

// While it exists, every JsonObject of its thread records its readings here. At most one per thread
// at a time.
class KeyRecord {
 public:
  KeyRecord();
  ~KeyRecord();
  KeyRecord(const KeyRecord&) = delete;
  KeyRecord& operator=(const KeyRecord&) = delete;

  // All readings in order, repetitions included.
  const std::vector<KeyUse>& uses() const { return uses_; }

  // Returns the record of this thread, or nullptr.
  static KeyRecord* Current();
  void Note(const std::string& path, std::string value, std::string refusal, std::string schema);
  // Sets the meaning of the use that was noted last.
  void Explain(std::string meaning) { uses_.back().meaning = std::move(meaning); }

 private:
  std::vector<KeyUse> uses_;
};

// "whole number from 1 to 100", "number, at least 0".
std::string WholeNumberText(int64_t min, int64_t max);
std::string NumberText(double min, double max);

}  // namespace dslaunch
