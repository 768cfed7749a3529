// Records which keys a reader of configurations reads, and which values they may have.
// docs/reference is made from it.
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
  std::string meaning = {};  // description for docs/reference
};

// While this object exists, every JsonObject of its thread records the keys that it reads here. A
// thread has at most one at a time.
class KeyRecord {
 public:
  KeyRecord();
  ~KeyRecord();
  KeyRecord(const KeyRecord&) = delete;
  KeyRecord& operator=(const KeyRecord&) = delete;

  // All uses in order, including repetitions.
  const std::vector<KeyUse>& uses() const { return uses_; }

  // Returns the record of this thread, or nullptr.
  static KeyRecord* Current();
  void Note(const std::string& path, std::string value, std::string refusal, std::string schema);
  // Sets the meaning of the last use.
  void Explain(std::string meaning) { uses_.back().meaning = std::move(meaning); }

 private:
  std::vector<KeyUse> uses_;
};

// Adds the meaning of the key that was read last, with its default, to the KeyRecord of this
// thread, if there is one.
void ExplainLastKey(const char* meaning);

// Return "whole number from 1 to 100", "number, at least 0" and the like.
std::string WholeNumberText(int64_t min, int64_t max);
std::string NumberText(double min, double max);

}  // namespace dslaunch
