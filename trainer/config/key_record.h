// Which keys a reader of configurations asks for, and what it takes: what docs/reference is made
// of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// One key that JsonObject was asked for.
struct KeyUse {
  std::string path;     // "engine.optimizer.params.lr"; items of lists as in "param_groups[].lr"
  std::string value;    // "whole number, at least 1"; empty for a section
  std::string refusal;  // why nothing else is taken; empty: the key is obeyed
  std::string schema;   // the value as JSON Schema; empty for a section
  std::string meaning = {};  // in words for docs/reference
};

// While it lives, every JsonObject of its thread notes here what it is asked for. At most one lives
// on a thread.
class KeyRecord {
 public:
  KeyRecord();
  ~KeyRecord();
  KeyRecord(const KeyRecord&) = delete;
  KeyRecord& operator=(const KeyRecord&) = delete;

  // In the order in which they were asked for, each as often as it was.
  const std::vector<KeyUse>& uses() const { return uses_; }

  // The record of this thread; nullptr without one.
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
