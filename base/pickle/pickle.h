// Reads Python pickles as inert values. Nothing is imported, called or constructed: a class is
// represented by its name, and an object by the values that the pickle would have passed to the
// class. Every bound is checked before memory is allocated, and the depth of a pickle does not use
// the stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace dslaunch {

enum class PickleType {
  kNone,
  kBool,
  kInt,
  kDouble,
  kString,
  kBytes,
  kTuple,
  kList,
  kSet,
  kDict,
  kGlobal,     // a class or function by module and name, which is not called
  kObject,     // a call or an instance of a class, with its global, arguments, state and items
  kReference,  // a persistent ID; in torch.save's files, a storage
};

struct PickleLimits {
  size_t bytes = size_t{16} << 20;  // size of the pickle
  size_t values = 10'000'000;       // number of values and memo entries
  size_t depth = 200;               // number of levels of containers, objects and references
  size_t string_bytes = size_t{1} << 20;
};

struct PickleNode;     // defined in pickle_node.h
struct PickleContent;  // defined in pickle_node.h

// A view of one value of a Pickle, which must outlive the view. A value to which the pickle refers
// several times is shared. Accessors for a type other than the value's return nullopt.
class PickleValue {
 public:
  PickleType type() const;
  bool IsNone() const { return type() == PickleType::kNone; }
  std::optional<bool> Bool() const;
  std::optional<int64_t> Int() const;    // nullopt for a bool, and beyond 64 bits
  std::optional<double> Double() const;  // nullopt for an int
  std::optional<std::string_view> String() const;
  std::optional<std::string_view> Bytes() const;

  // Returns the number of items of a tuple, list or set, or of entries of a dict. For an object,
  // returns the number of items or entries that the pickle appended to it or set in it. 0 for other
  // types.
  size_t size() const;
  bool has_entries() const;  // Returns whether size() counts entries
  // Returns item `i` of a tuple, list, set or object. Preconditions: i < size(), and the value has
  // items, not entries.
  PickleValue item(size_t i) const;
  // Returns entry `i` of a dict or object, in the pickle's order. Precondition: i < size().
  std::pair<PickleValue, PickleValue> entry(size_t i) const;
  // Returns the value of a string or int key in a dict, the last one that was set; nullopt if there
  // is none. For an object, looks in its state if that is a dict, else in its entries.
  std::optional<PickleValue> Find(std::string_view key) const;
  std::optional<PickleValue> Find(int64_t key) const;

  // For kGlobal and kObject, returns module and name joined by a dot, such as "torch.FloatStorage".
  // Returns "" for other types, and for an object whose callee is itself an object.
  std::string_view global() const;
  // For kObject, return the tuple of arguments, and the state that BUILD set; nullopt for other
  // types, and without a state.
  std::optional<PickleValue> args() const;
  std::optional<PickleValue> state() const;
  // For kReference, returns the persistent ID; nullopt for other types.
  std::optional<PickleValue> id() const;

  // Returns whether both are the same value of the pickle, not only equal values.
  bool Same(const PickleValue& other) const { return node_ == other.node_; }

 private:
  friend class Pickle;
  explicit PickleValue(const PickleNode* node) : node_(node) {}
  const PickleNode* node_;
};

// Owns the values of one pickle. Movable.
class Pickle {
 public:
  // Reads a pickle of protocol 2 to 5. `source` names the file in errors, which also contain the
  // offset and opcode. collections.OrderedDict becomes a dict. Fails with kBadInput for opcodes
  // that neither torch.save nor torch.distributed's checkpoints and Flight Recorder write, for a
  // value that contains itself, and for anything beyond `limits`.
  static Result<Pickle> Read(std::string_view bytes, const std::string& source,
                             const PickleLimits& limits = {});
  Pickle(Pickle&&) noexcept;
  Pickle& operator=(Pickle&&) noexcept;
  ~Pickle();

  PickleValue root() const;

 private:
  explicit Pickle(std::unique_ptr<PickleContent> content);
  std::unique_ptr<PickleContent> content_;
};

}  // namespace dslaunch
