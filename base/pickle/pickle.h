// Reads Python pickles as inert values. Imports, calls and constructs nothing: a class is
// represented by its name, and an object by the values that the pickle would have passed to the
// class. Every bound is checked before memory is allocated, and deep pickles do not use the stack.
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
  kObject,     // an object, with its class or function, arguments, state and items
  kReference,  // a persistent ID, which stands for a storage in files of torch.save
};

struct PickleLimits {
  size_t bytes = size_t{16} << 20;  // maximum size of the pickle, in bytes
  size_t values = 10'000'000;       // maximum number of values and memo entries
  size_t depth = 200;  // maximum number of levels of containers, objects and references
  size_t string_bytes = size_t{1} << 20;
};

struct PickleNode;     // defined in pickle_node.h
struct PickleContent;  // defined in pickle_node.h

// A view of one value of a Pickle, which must outlive the view. If the pickle refers to a value
// several times, all views share that value. Accessors for a type other than the value's type
// return nullopt.
class PickleValue {
 public:
  PickleType type() const;
  bool IsNone() const { return type() == PickleType::kNone; }
  std::optional<bool> Bool() const;
  std::optional<int64_t> Int() const;    // nullopt also for a bool, and for an int beyond 64 bits
  std::optional<double> Double() const;  // nullopt for an int, too
  std::optional<std::string_view> String() const;
  std::optional<std::string_view> Bytes() const;

  // Returns the number of items of a tuple, list or set, or the number of entries of a dict. For an
  // object, returns the number of items or entries that the pickle appended to the object or set in
  // it. Returns 0 for other types.
  size_t size() const;
  // Returns whether size() counts entries, not items.
  bool has_entries() const;
  // Returns item `i` of a tuple, list, set or object. Precondition: i < size() and !has_entries().
  PickleValue item(size_t i) const;
  // Returns entry `i` of a dict or object, in the pickle's order. Precondition: i < size() and
  // has_entries().
  std::pair<PickleValue, PickleValue> entry(size_t i) const;
  // Returns the value of a string or int key in a dict; nullopt if the key does not occur. If the
  // key occurs several times, returns the value that was set last. For an object, looks in its
  // state if that is a dict, else in its entries.
  std::optional<PickleValue> Find(std::string_view key) const;
  std::optional<PickleValue> Find(int64_t key) const;

  // Returns module and name of a kGlobal or kObject joined by a dot, such as "torch.FloatStorage".
  // Returns "" for other types, and for an object whose callee is itself an object.
  std::string_view global() const;

  // Returns the tuple of arguments of a kObject; nullopt for other types.
  std::optional<PickleValue> args() const;

  // Returns the state that the opcode BUILD set in a kObject; nullopt for other types, and if no
  // state was set.
  std::optional<PickleValue> state() const;
  // Returns the persistent ID of a kReference; nullopt for other types.
  std::optional<PickleValue> id() const;

  // Returns whether both views refer to the same value of the pickle, not only to equal values.
  bool Same(const PickleValue& other) const { return node_ == other.node_; }

 private:
  friend class Pickle;
  explicit PickleValue(const PickleNode* node) : node_(node) {}
  const PickleNode* node_;
};

// A pickle that was read. Owns its values. Movable.
class Pickle {
 public:
  // Returns the content of a pickle of protocol 2 to 5. `source` names the file in errors, which
  // also contain the offset and the opcode. A collections.OrderedDict becomes a dict. Fails with
  // kBadInput for opcodes that neither torch.save, nor torch.distributed's checkpoints, nor Flight
  // Recorder write, for a value that contains itself, and if a limit is exceeded.
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
