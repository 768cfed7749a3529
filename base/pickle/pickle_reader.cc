// Executes the opcodes of a pickle, and then checks the resulting value.
#include <algorithm>

#include "base/pickle/pickle_opcodes.h"

namespace dslaunch {
namespace {

constexpr size_t kMinIndexedKeys = 16;  // smallest number of keys for which an index is faster
constexpr uint32_t kOpen = UINT32_MAX;  // height of a value whose content is still being checked

// Returns the problem together with its opcode, such as "byte 12 (REDUCE): problem".
std::string AtOpcode(const PickleContent& content, uint64_t offset, const std::string& problem) {
  const PickleOpcode* opcode =
      offset < content.bytes.size()
          ? FindPickleOpcode(static_cast<unsigned char>(content.bytes[offset]))
          : nullptr;
  return "byte " + std::to_string(offset) +
         (opcode == nullptr ? "" : std::string(" (") + opcode->name + ")") + ": " + problem;
}

bool RunOpcode(PickleMachine& machine) {
  const bool is_first = machine.next() == 0;
  uint8_t code = 0;
  if (!machine.Take(&code)) return machine.Fail("the pickle ends without STOP");
  const PickleOpcode* opcode = FindPickleOpcode(code);
  if (opcode == nullptr) return machine.Fail("is not an opcode: " + std::to_string(code));
  if (is_first && code != 0x80) return machine.Fail("is not a pickle of protocol 2 to 5");
  if (opcode->run == nullptr) {
    return machine.Fail("checkpoints do not use this opcode, and it is not supported");
  }
  return opcode->run(machine);
}

// Executes opcodes until STOP. Returns the problem; empty on success.
std::string RunAll(PickleContent& content, const PickleLimits& limits) {
  PickleMachine machine(content, limits);
  while (content.root == nullptr) {
    const size_t offset = machine.next();
    machine.BeginOpcode();
    if (!RunOpcode(machine)) return AtOpcode(content, offset, machine.problem());
  }
  return "";
}

// Return the number of children of a value, and child `i` below that number; nullptr if that part
// of the value is not set.
size_t ChildrenOf(const PickleParts& parts) { return parts.items.size() + 3; }
PickleNode* ChildOf(const PickleParts& parts, size_t i) {
  const size_t after = i - parts.items.size();
  return i < parts.items.size() ? parts.items[i]
         : after == 0           ? parts.callee
         : after == 1           ? parts.args
                                : parts.state;
}

// Indexes the keys of a dict if it is large and all its keys are strings.
void IndexKeys(PickleParts& parts) {
  if (!parts.has_entries || parts.items.size() < 2 * kMinIndexedKeys) return;
  std::vector<size_t> places;
  for (size_t place = 0; place < parts.items.size(); place += 2) {
    if (parts.items[place]->type != PickleType::kString) return;
    places.push_back(place);
  }
  std::stable_sort(places.begin(), places.end(), [&](size_t a, size_t b) {
    return std::get<std::string_view>(parts.items[a]->value) <
           std::get<std::string_view>(parts.items[b]->value);
  });
  parts.keys_in_order = std::move(places);
}

// Checks all values of a pickle without recursion. Visits each value once, after its content.
class WholeCheck {
 public:
  WholeCheck(PickleContent& content, const PickleLimits& limits)
      : content_(content), limits_(limits) {}

  // Rejects cycles and too many levels, and indexes large dicts. Returns the problem; empty on
  // success.
  std::string Run() {
    bool is_good = Enter(content_.root);
    while (is_good && !path_.empty()) {
      Visit& visit = path_.back();
      PickleParts& parts = visit.node->NewParts();
      if (visit.next < ChildrenOf(parts)) {
        PickleNode* child = ChildOf(parts, visit.next++);
        is_good = child == nullptr || Enter(child);
      } else {
        Leave(*visit.node, parts);
      }
    }
    return problem_;
  }

 private:
  struct Visit {
    PickleNode* node;
    size_t next = 0;  // index of the next child to visit
  };

  bool Enter(PickleNode* node) {
    if (node->height == kOpen) {
      problem_ = AtOpcode(content_, node->offset, "a value that is put into itself");
      return false;
    }
    if (path_.size() + std::max(node->height, 1u) > limits_.depth) {
      problem_ = AtOpcode(content_, node->offset,
                          "more than " + std::to_string(limits_.depth) + " levels");
      return false;
    }
    if (node->height == 0 && node->parts() == nullptr) node->height = 1;
    if (node->height == 0) {
      node->height = kOpen;
      path_.push_back({node});
    }
    return true;
  }

  void Leave(PickleNode& node, PickleParts& parts) {
    uint32_t height = 0;
    for (size_t i = 0; i < ChildrenOf(parts); ++i) {
      const PickleNode* child = ChildOf(parts, i);
      if (child != nullptr) height = std::max(height, child->height);
    }
    node.height = height + 1;
    IndexKeys(parts);
    path_.pop_back();
  }

  PickleContent& content_;
  const PickleLimits& limits_;
  std::vector<Visit> path_;
  std::string problem_;
};

}  // namespace

Result<Pickle> Pickle::Read(std::string_view bytes, const std::string& source,
                            const PickleLimits& limits) {
  const auto refuse = [&](const std::string& problem) {
    return Error{ExitCode::kBadInput, source + ": " + problem};
  };
  if (bytes.size() > limits.bytes) {
    return refuse("a pickle of " + std::to_string(bytes.size()) + " bytes; at most " +
                  std::to_string(limits.bytes) + " are read");
  }
  auto content = std::make_unique<PickleContent>();
  content->bytes = bytes;
  std::string problem = RunAll(*content, limits);
  if (problem.empty()) problem = WholeCheck(*content, limits).Run();
  if (!problem.empty()) return refuse(problem);
  return Pickle(std::move(content));
}

}  // namespace dslaunch
