#include "base/pickle/pickle_machine.h"

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxGlobalBytes = 512;

}  // namespace

bool PickleMachine::Fail(std::string problem) {
  problem_ = std::move(problem);
  return false;
}

bool PickleMachine::Take(uint64_t bytes, std::string_view* taken) {
  const std::string_view rest = std::string_view(content_.bytes).substr(next_);
  if (bytes > rest.size()) {
    return Fail("needs " + std::to_string(bytes) + " bytes, and the pickle has " +
                std::to_string(rest.size()) + " more");
  }
  *taken = rest.substr(0, bytes);
  next_ += bytes;
  return true;
}

bool PickleMachine::TakeLine(std::string_view* line) {
  const std::string_view rest = std::string_view(content_.bytes).substr(next_);
  const size_t end = rest.substr(0, kMaxGlobalBytes + 1).find('\n');
  if (end == std::string_view::npos) {
    return Fail("its name does not end within " + std::to_string(kMaxGlobalBytes) + " bytes");
  }
  *line = rest.substr(0, end);
  next_ += end + 1;
  return true;
}

bool PickleMachine::TakeText(uint64_t length, std::string_view* text) {
  if (length > limits_.string_bytes) {
    return Fail("has " + std::to_string(length) + " bytes; at most " +
                std::to_string(limits_.string_bytes) + " are read");
  }
  return Take(length, text);
}

bool PickleMachine::HasRoom() {
  if (content_.nodes.size() + memo_entries_ < limits_.values) return true;
  return Fail("the pickle has more than " + std::to_string(limits_.values) +
              " values and memo entries");
}

PickleNode* PickleMachine::New(PickleType type) {
  if (!HasRoom()) return nullptr;
  PickleNode& node = content_.nodes.emplace_back();
  node.type = type;
  node.offset = offset_;
  stack_.push_back(&node);
  return &node;
}

bool PickleMachine::Pop(PickleNode** value) {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) return Fail("the stack is empty");
  *value = stack_.back();
  stack_.pop_back();
  return true;
}

bool PickleMachine::PopToMark(std::vector<PickleNode*>* values) {
  if (marks_.empty()) return Fail("there is no MARK before it");
  values->assign(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return true;
}

bool PickleMachine::PushGlobal(std::string_view module, std::string_view name) {
  if (module.size() + name.size() > kMaxGlobalBytes || !IsUtf8(module) || !IsUtf8(name)) {
    return Fail("a name of more than " + std::to_string(kMaxGlobalBytes) +
                " bytes, or one that is not UTF-8");
  }
  const auto [place, is_new] =
      content_.globals.insert(std::string(module) + "." + std::string(name));
  global_bytes_ += is_new ? place->size() : 0;
  if (global_bytes_ > limits_.string_bytes) {
    return Fail("the names of classes and functions have more than " +
                std::to_string(limits_.string_bytes) + " bytes");
  }
  return Push(PickleType::kGlobal, std::string_view(*place));
}

bool PickleMachine::Remember(uint64_t index) {
  if (stack_.empty()) return Fail("the stack is empty");
  // Writers count memo entries from 0, and each entry needs an opcode, so a valid index is less
  // than the number of bytes.
  if (index >= content_.bytes.size()) {
    return Fail("memo entry " + std::to_string(index) + " of a pickle of " +
                std::to_string(content_.bytes.size()) + " bytes");
  }
  if (!HasRoom()) return false;
  if (index >= memo_.size()) memo_.resize(index + 1);
  memo_entries_ += memo_[index] == nullptr ? 1 : 0;
  memo_[index] = stack_.back();
  return true;
}

bool PickleMachine::Recall(uint64_t index) {
  if (index >= memo_.size() || memo_[index] == nullptr) {
    return Fail("memo entry " + std::to_string(index) + " does not exist");
  }
  stack_.push_back(memo_[index]);
  return true;
}

bool PickleMachine::Stop() {
  PickleNode* root = nullptr;
  if (!Pop(&root)) return false;
  if (!stack_.empty() || !marks_.empty()) return Fail("values are left on the stack");
  if (next_ != content_.bytes.size()) {
    return Fail(std::to_string(content_.bytes.size() - next_) + " bytes follow the pickle");
  }
  content_.root = root;
  return true;
}

}  // namespace dslaunch
