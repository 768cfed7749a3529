// How a Pickle holds its values; for this folder alone.
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

// Content of a container or object. Other values have none, so that they are small.
struct PickleParts {
  std::vector<PickleNode*> items;  // keys and values in turn, if `has_entries`
  bool has_entries = false;
  PickleNode* callee = nullptr;  // kObject: its global
  PickleNode* args = nullptr;    // kObject: arguments; kReference: its id
  PickleNode* state = nullptr;   // kObject
  // The places in `items` of the keys of a large dict or object, sorted by key and then by place.
  // Empty for a small one, and if a key is not a string.
  std::vector<size_t> keys_in_order;
};

struct PickleNode {
  PickleType type = PickleType::kNone;
  uint32_t height = 0;  // levels including it; 0 until Pickle::Read has checked the whole
  uint64_t offset = 0;  // offset of the opcode that made it
  // kBool, kInt, kDouble; text of kString, kBytes, kGlobal; kInt without a value exceeds 64 bits.
  std::variant<std::monostate, bool, int64_t, double, std::string_view,
               std::unique_ptr<PickleParts>>
      value;

  const PickleParts* parts() const {
    const auto* held = std::get_if<std::unique_ptr<PickleParts>>(&value);
    return held == nullptr ? nullptr : held->get();
  }
  // Makes the parts if there are none yet.
  PickleParts& NewParts() {
    if (parts() == nullptr) value = std::make_unique<PickleParts>();
    return *std::get<std::unique_ptr<PickleParts>>(value);
  }
};

struct PickleContent {
  std::string bytes;              // strings are views of it
  std::deque<PickleNode> nodes;   // never moved
  std::set<std::string> globals;  // names that values of kGlobal refer to
  PickleNode* root = nullptr;
};

}  // namespace dslaunch
