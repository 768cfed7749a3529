// Implements the stack machine that executes pickles. Used only in this folder.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/pickle/pickle_node.h"

namespace dslaunch {

// The state of a pickle's execution: its bytes, the stack, the marks on the stack, and the memo.
// Methods that return bool return false after Fail().
class PickleMachine {
 public:
  PickleMachine(PickleContent& content, const PickleLimits& limits)
      : content_(content), limits_(limits) {}

  // Stores the problem for problem() and returns false.
  bool Fail(std::string problem);
  const std::string& problem() const { return problem_; }

  // Returns the offset of the next byte.
  size_t next() const { return next_; }
  size_t bytes_left() const { return content_.bytes.size() - next_; }

  // Reads the next `bytes` bytes. Fails if fewer bytes are left.
  bool Take(uint64_t bytes, std::string_view* taken);
  template <class Number>
  bool Take(Number* number) {
    static_assert(std::endian::native == std::endian::little);
    std::string_view bytes;
    if (!Take(sizeof *number, &bytes)) return false;
    std::memcpy(number, bytes.data(), sizeof *number);
    return true;
  }
  bool TakeLine(std::string_view* line);
  // Reads `length` bytes into `text`. Fails if `length` exceeds the limit for strings.
  bool TakeText(uint64_t length, std::string_view* text);

  // Pushes a new value on the stack and returns it; nullptr after Fail().
  PickleNode* New(PickleType type);
  template <class Value>
  bool Push(PickleType type, Value value) {
    PickleNode* node = New(type);
    if (node == nullptr) return false;
    node->value = value;
    return true;
  }
  bool PushGlobal(std::string_view module, std::string_view name);
  void PushAgain(PickleNode* value) { stack_.push_back(value); }
  bool Pop(PickleNode** value);
  void Mark() { marks_.push_back(stack_.size()); }
  bool PopToMark(std::vector<PickleNode*>* values);

  bool Remember(uint64_t index);
  bool RememberNext() { return Remember(memo_.size()); }
  bool Recall(uint64_t index);

  // Makes the last value the result of the pickle. Fails if the stack has other values, or if bytes
  // follow STOP.
  bool Stop();

  void BeginOpcode() { offset_ = next_; }

 private:
  // Returns whether the limit allows one more value. If not, calls Fail().
  bool HasRoom();

  PickleContent& content_;
  const PickleLimits& limits_;
  size_t next_ = 0;
  size_t offset_ = 0;  // offset of the current opcode
  std::vector<PickleNode*> stack_;
  std::vector<size_t> marks_;  // sizes of the stack when the marks were set
  std::vector<PickleNode*> memo_;
  size_t memo_entries_ = 0;
  size_t global_bytes_ = 0;  // total size of all names in content_.globals
  std::string problem_;
};

}  // namespace dslaunch
