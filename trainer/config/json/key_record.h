// Records which keys a reader of configurations reads, and which values they may have.
// docs/reference is generated from the record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// One read of a key by a getter of JsonObject.
struct KeyUse {
  // Path of the key, such as "engine.optimizer.params.lr", or "param_groups[].lr" for items of
  // lists.
  std::string path;
  std::string value;  // accepted values, such as "whole number, at least 1"; empty for a section
  // Reason why no other value is accepted; empty if the key is supported.
  std::string refusal;
  std::string schema;        // JSON Schema of the value; empty for a section
  std::string meaning = {};  // description of the key for docs/reference
};

// Records the keys that every JsonObject of this thread reads during the lifetime of the object. A
// thread has at most one KeyRecord at a time.
class KeyRecord {
 public:
  KeyRecord();
  ~KeyRecord();
  KeyRecord(const KeyRecord&) = delete;
  KeyRecord& operator=(const KeyRecord&) = delete;

  // Returns all recorded reads in order, including repetitions.
  const std::vector<KeyUse>& uses() const { return uses_; }

  // Returns the record of this thread, or nullptr if there is none.
  static KeyRecord* Current();
  void Note(const std::string& path, std::string value, std::string refusal, std::string schema);
  // Sets the meaning of the key that was recorded last.
  void Explain(std::string meaning) { uses_.back().meaning = std::move(meaning); }

 private:
  std::vector<KeyUse> uses_;
};

// Adds a meaning to the key that was read last, including its default, in the KeyRecord of this
// thread. Does nothing if the thread has no KeyRecord.
void ExplainLastKey(const char* meaning);

// Returns a text such as "whole number from 1 to 100" or "number, at least 0".
std::string WholeNumberText(int64_t min, int64_t max);
std::string NumberText(double min, double max);

}  // namespace dslaunch
