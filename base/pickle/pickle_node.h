// Defines how a Pickle stores its values. Used only in this folder.
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

// The content of a container or object. Other values have none, so that they are small.
struct PickleParts {
  std::vector<PickleNode*> items;  // if `has_entries`, keys and values alternate
  bool has_entries = false;
  PickleNode* callee = nullptr;  // global of a kObject
  PickleNode* args = nullptr;    // arguments of a kObject, ID of a kReference
  PickleNode* state = nullptr;   // state of a kObject
  // Indices in `items` of the keys of a large dict or object, sorted by key and then by index.
  // Empty for a small one, or if a key is not a string.
  std::vector<size_t> keys_in_order;
};

struct PickleNode {
  PickleType type = PickleType::kNone;
  uint32_t height = 0;  // number of levels including this node; 0 until Pickle::Read has checked it
  uint64_t offset = 0;  // offset of the opcode that made the value
  // The value of kBool, kInt or kDouble, or the text of kString, kBytes or kGlobal. A kInt without
  // a value exceeds 64 bits.
  std::variant<std::monostate, bool, int64_t, double, std::string_view,
               std::unique_ptr<PickleParts>>
      value;

  const PickleParts* parts() const {
    const auto* held = std::get_if<std::unique_ptr<PickleParts>>(&value);
    return held == nullptr ? nullptr : held->get();
  }
  // Returns the parts, which are created if there are none yet.
  PickleParts& NewParts() {
    if (parts() == nullptr) value = std::make_unique<PickleParts>();
    return *std::get<std::unique_ptr<PickleParts>>(value);
  }
};

struct PickleContent {
  std::string bytes;              // the pickle, to which strings are views
  std::deque<PickleNode> nodes;   // values, which are never moved
  std::set<std::string> globals;  // names that values of kGlobal refer to
  PickleNode* root = nullptr;
};

}  // namespace dslaunch
