// Defines the form in which a Pickle stores its values. Used only in this folder.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/pickle/pickle.h"

namespace dslaunch {

// The content of a container or object. Other values have no PickleParts, so that they are small.
struct PickleParts {
  std::vector<PickleNode*> items;  // items, or alternating keys and values if `has_entries`
  bool has_entries = false;
  PickleNode* callee = nullptr;  // class or function of a kObject
  PickleNode* args = nullptr;    // arguments of a kObject, or ID of a kReference
  PickleNode* state = nullptr;   // state of a kObject
  // Indices in `items` of the keys of a large dict or object, sorted by key and then by index.
  // Empty for a small dict, or if a key is not a string.
  std::vector<size_t> keys_in_order;
};

struct PickleNode {
  PickleType type = PickleType::kNone;
  uint32_t height = 0;  // levels of values including this one; 0 until Pickle::Read has checked it
  uint64_t offset = 0;  // offset of the opcode that made the value
  // The value of a kBool, kInt or kDouble, or the text of a kString, kBytes or kGlobal. A kInt that
  // exceeds 64 bits has no value.
  std::variant<std::monostate, bool, int64_t, double, std::string_view,
               std::unique_ptr<PickleParts>>
      value;

  const PickleParts* parts() const {
    const auto* held = std::get_if<std::unique_ptr<PickleParts>>(&value);
    return held == nullptr ? nullptr : held->get();
  }
  // Returns the parts of the value. Creates them if the value has none.
  PickleParts& NewParts() {
    if (parts() == nullptr) value = std::make_unique<PickleParts>();
    return *std::get<std::unique_ptr<PickleParts>>(value);
  }
};

struct PickleContent {
  std::string bytes;              // content of the pickle, to which all strings refer
  std::deque<PickleNode> nodes;   // values, which are never moved
  std::set<std::string> globals;  // names to which values of kGlobal refer
  PickleNode* root = nullptr;
};

}  // namespace dslaunch
