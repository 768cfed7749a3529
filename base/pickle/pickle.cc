#include "base/pickle/pickle.h"

#include <algorithm>

#include "base/pickle/pickle_node.h"

namespace dslaunch {
namespace {

template <class T>
std::optional<T> ValueOf(const PickleNode& node, PickleType type) {
  if (node.type != type) return std::nullopt;
  const T* value = std::get_if<T>(&node.value);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

// Returns the dict in which to look up keys of `node`; nullptr if `node` has no dict.
const PickleParts* LookupParts(const PickleNode& node) {
  const PickleParts* parts = node.parts();
  if (parts == nullptr) return nullptr;
  if (node.type == PickleType::kObject && parts->state != nullptr &&
      parts->state->type == PickleType::kDict) {
    parts = parts->state->parts();
  }
  return parts != nullptr && parts->has_entries ? parts : nullptr;
}

}  // namespace

PickleType PickleValue::type() const { return node_->type; }

std::optional<bool> PickleValue::Bool() const { return ValueOf<bool>(*node_, PickleType::kBool); }

std::optional<int64_t> PickleValue::Int() const {
  return ValueOf<int64_t>(*node_, PickleType::kInt);
}

std::optional<double> PickleValue::Double() const {
  return ValueOf<double>(*node_, PickleType::kDouble);
}

std::optional<std::string_view> PickleValue::String() const {
  return ValueOf<std::string_view>(*node_, PickleType::kString);
}

std::optional<std::string_view> PickleValue::Bytes() const {
  return ValueOf<std::string_view>(*node_, PickleType::kBytes);
}

size_t PickleValue::size() const {
  const PickleParts* parts = node_->parts();
  if (parts == nullptr) return 0;
  return parts->has_entries ? parts->items.size() / 2 : parts->items.size();
}

bool PickleValue::has_entries() const {
  const PickleParts* parts = node_->parts();
  return node_->type == PickleType::kDict || (parts != nullptr && parts->has_entries);
}

PickleValue PickleValue::item(size_t i) const { return PickleValue(node_->parts()->items.at(i)); }

std::pair<PickleValue, PickleValue> PickleValue::entry(size_t i) const {
  const std::vector<PickleNode*>& items = node_->parts()->items;
  return {PickleValue(items.at(2 * i)), PickleValue(items.at(2 * i + 1))};
}

std::optional<PickleValue> PickleValue::Find(std::string_view key) const {
  const PickleParts* parts = LookupParts(*node_);
  if (parts == nullptr) return std::nullopt;
  const auto key_at = [&](size_t place) {
    return ValueOf<std::string_view>(*parts->items[place], PickleType::kString);
  };
  if (!parts->keys_in_order.empty()) {
    const auto after = std::upper_bound(
        parts->keys_in_order.begin(), parts->keys_in_order.end(), key,
        [&](std::string_view wanted, size_t place) { return wanted < *key_at(place); });
    if (after == parts->keys_in_order.begin() || key_at(after[-1]) != key) return std::nullopt;
    return PickleValue(parts->items[after[-1] + 1]);
  }
  for (size_t place = parts->items.size(); place > 0; place -= 2) {
    if (key_at(place - 2) == key) return PickleValue(parts->items[place - 1]);
  }
  return std::nullopt;
}

std::optional<PickleValue> PickleValue::Find(int64_t key) const {
  const PickleParts* parts = LookupParts(*node_);
  if (parts == nullptr) return std::nullopt;
  for (size_t place = parts->items.size(); place > 0; place -= 2) {
    if (ValueOf<int64_t>(*parts->items[place - 2], PickleType::kInt) == key) {
      return PickleValue(parts->items[place - 1]);
    }
  }
  return std::nullopt;
}

std::string_view PickleValue::global() const {
  const PickleNode* node = node_;
  if (node->type == PickleType::kObject) node = node->parts()->callee;
  return ValueOf<std::string_view>(*node, PickleType::kGlobal).value_or("");
}

std::optional<PickleValue> PickleValue::args() const {
  if (node_->type != PickleType::kObject) return std::nullopt;
  return PickleValue(node_->parts()->args);
}

std::optional<PickleValue> PickleValue::state() const {
  if (node_->type != PickleType::kObject || node_->parts()->state == nullptr) return std::nullopt;
  return PickleValue(node_->parts()->state);
}

std::optional<PickleValue> PickleValue::id() const {
  if (node_->type != PickleType::kReference) return std::nullopt;
  return PickleValue(node_->parts()->args);
}

Pickle::Pickle(std::unique_ptr<PickleContent> content) : content_(std::move(content)) {}
Pickle::Pickle(Pickle&&) noexcept = default;
Pickle& Pickle::operator=(Pickle&&) noexcept = default;
Pickle::~Pickle() = default;

PickleValue Pickle::root() const { return PickleValue(content_->root); }

}  // namespace dslaunch
