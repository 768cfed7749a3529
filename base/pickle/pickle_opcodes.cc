#include "base/pickle/pickle_opcodes.h"

#include <array>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr std::string_view kOrderedDict = "collections.OrderedDict";

bool PushLong(PickleMachine& machine, std::string_view bytes) {
  if (bytes.size() > sizeof(int64_t)) return machine.Push(PickleType::kInt, std::monostate());
  const bool is_negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
  int64_t value = is_negative ? -1 : 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return machine.Push(PickleType::kInt, value);
}

bool AddItems(PickleMachine& machine, PickleType container, const std::vector<PickleNode*>& items) {
  PickleNode* target = nullptr;
  if (!machine.Pop(&target)) return false;
  const bool is_object = container == PickleType::kList && target->type == PickleType::kObject;
  if (target->type != container && !is_object)
    return machine.Fail("it appends to a value of another type");
  machine.PushAgain(target);
  if (items.empty()) return true;
  PickleParts& parts = target->NewParts();
  if (parts.has_entries) return machine.Fail("an object has items and keys");
  parts.items.insert(parts.items.end(), items.begin(), items.end());
  return true;
}

bool AddEntries(PickleMachine& machine, const std::vector<PickleNode*>& items) {
  PickleNode* target = nullptr;
  if (!machine.Pop(&target)) return false;
  if (target->type != PickleType::kDict && target->type != PickleType::kObject) {
    return machine.Fail("it sets items of a value of another type");
  }
  if (items.size() % 2 != 0) return machine.Fail("a key has no value");
  machine.PushAgain(target);
  if (items.empty()) return true;
  PickleParts& parts = target->NewParts();
  if (!parts.has_entries && !parts.items.empty())
    return machine.Fail("an object has items and keys");
  parts.has_entries = true;
  parts.items.insert(parts.items.end(), items.begin(), items.end());
  return true;
}

bool CallLast(PickleMachine& machine, bool is_class) {
  PickleNode* args = nullptr;
  PickleNode* callee = nullptr;
  if (!machine.Pop(&args) || !machine.Pop(&callee)) return false;
  const bool is_global = callee->type == PickleType::kGlobal;
  if (!is_global && (is_class || callee->type != PickleType::kObject)) {
    return machine.Fail("what it calls is not a class or function");
  }
  if (args->type != PickleType::kTuple) return machine.Fail("its arguments are not a tuple");
  if (is_global && args->parts() == nullptr &&
      std::get<std::string_view>(callee->value) == kOrderedDict) {
    return machine.New(PickleType::kDict) != nullptr;
  }
  PickleNode* object = machine.New(PickleType::kObject);
  if (object == nullptr) return false;
  object->NewParts().callee = callee;
  object->NewParts().args = args;
  return true;
}

bool Proto(PickleMachine& machine) {
  uint8_t version = 0;
  if (!machine.Take(&version)) return false;
  if (version < 2 || version > 5) {
    return machine.Fail("protocol " + std::to_string(version) + "; 2 to 5 are supported");
  }
  return true;
}

bool Frame(PickleMachine& machine) {
  uint64_t bytes = 0;
  if (!machine.Take(&bytes)) return false;
  if (bytes > machine.bytes_left()) return machine.Fail("it ends beyond the pickle");
  return true;
}

bool Mark(PickleMachine& machine) {
  machine.Mark();
  return true;
}

bool Stop(PickleMachine& machine) { return machine.Stop(); }

bool None(PickleMachine& machine) { return machine.Push(PickleType::kNone, std::monostate()); }

template <bool value>
bool Bool(PickleMachine& machine) {
  return machine.Push(PickleType::kBool, value);
}

template <PickleType type>
bool Empty(PickleMachine& machine) {
  return machine.New(type) != nullptr;
}

// Reads a length, and then that many bytes into `text`.
template <class Length>
bool TakeText(PickleMachine& machine, std::string_view* text) {
  Length length = 0;
  return machine.Take(&length) && machine.TakeText(length, text);
}

template <class Number>
bool Int(PickleMachine& machine) {
  Number value = 0;
  return machine.Take(&value) && machine.Push(PickleType::kInt, static_cast<int64_t>(value));
}

template <class Length>
bool Long(PickleMachine& machine) {
  std::string_view bytes;
  return TakeText<Length>(machine, &bytes) && PushLong(machine, bytes);
}

bool Float(PickleMachine& machine) {
  uint64_t bits = 0;
  if (!machine.Take(&bits)) return false;
  return machine.Push(PickleType::kDouble,
                      // BINFLOAT stores its number in big-endian order, so the bytes are swapped.
                      std::bit_cast<double>(__builtin_bswap64(bits)));
}

template <class Length>
bool Unicode(PickleMachine& machine) {
  std::string_view text;
  if (!TakeText<Length>(machine, &text)) return false;
  if (!IsUtf8(text)) return machine.Fail("its text is not UTF-8");
  return machine.Push(PickleType::kString, text);
}

template <class Length>
bool Binary(PickleMachine& machine) {
  std::string_view bytes;
  return TakeText<Length>(machine, &bytes) && machine.Push(PickleType::kBytes, bytes);
}

template <class Length>
bool OldString(PickleMachine& machine) {
  std::string_view text;
  return TakeText<Length>(machine, &text) &&
         machine.Push(IsUtf8(text) ? PickleType::kString : PickleType::kBytes, text);
}

template <size_t count>
bool TupleOf(PickleMachine& machine) {
  std::array<PickleNode*, count> items;
  for (size_t i = count; i > 0; --i) {
    if (!machine.Pop(&items[i - 1])) return false;
  }
  PickleNode* tuple = machine.New(PickleType::kTuple);
  if (tuple != nullptr) tuple->NewParts().items.assign(items.begin(), items.end());
  return tuple != nullptr;
}

template <PickleType type>
bool FromMark(PickleMachine& machine) {
  std::vector<PickleNode*> items;
  if (!machine.PopToMark(&items)) return false;
  PickleNode* node = machine.New(type);
  if (node != nullptr && !items.empty()) node->NewParts().items = std::move(items);
  return node != nullptr;
}

bool Append(PickleMachine& machine) {
  PickleNode* item = nullptr;
  return machine.Pop(&item) && AddItems(machine, PickleType::kList, {item});
}

template <PickleType type>
bool Appends(PickleMachine& machine) {
  std::vector<PickleNode*> items;
  return machine.PopToMark(&items) && AddItems(machine, type, items);
}

bool SetItem(PickleMachine& machine) {
  PickleNode* key = nullptr;
  PickleNode* value = nullptr;
  return machine.Pop(&value) && machine.Pop(&key) && AddEntries(machine, {key, value});
}

bool SetItems(PickleMachine& machine) {
  std::vector<PickleNode*> items;
  return machine.PopToMark(&items) && AddEntries(machine, items);
}

template <class Index>
bool Put(PickleMachine& machine) {
  Index index = 0;
  return machine.Take(&index) && machine.Remember(index);
}

template <class Index>
bool Get(PickleMachine& machine) {
  Index index = 0;
  return machine.Take(&index) && machine.Recall(index);
}

bool Global(PickleMachine& machine) {
  std::string_view module;
  std::string_view name;
  return machine.TakeLine(&module) && machine.TakeLine(&name) && machine.PushGlobal(module, name);
}

bool StackGlobal(PickleMachine& machine) {
  PickleNode* name = nullptr;
  PickleNode* module = nullptr;
  if (!machine.Pop(&name) || !machine.Pop(&module)) return false;
  if (name->type != PickleType::kString || module->type != PickleType::kString) {
    return machine.Fail("its names are not strings");
  }
  return machine.PushGlobal(std::get<std::string_view>(module->value),
                            std::get<std::string_view>(name->value));
}

bool PersistentId(PickleMachine& machine) {
  PickleNode* id = nullptr;
  if (!machine.Pop(&id)) return false;
  PickleNode* reference = machine.New(PickleType::kReference);
  if (reference != nullptr) reference->NewParts().args = id;
  return reference != nullptr;
}

bool Build(PickleMachine& machine) {
  PickleNode* state = nullptr;
  PickleNode* target = nullptr;
  if (!machine.Pop(&state) || !machine.Pop(&target)) return false;
  machine.PushAgain(target);
  // Attributes of an OrderedDict have no effect on its content, so they are ignored.
  if (target->type == PickleType::kDict) return true;
  if (target->type != PickleType::kObject)
    return machine.Fail("it sets the state of a plain value");
  target->NewParts().state = state;
  return true;
}

bool NewObject(PickleMachine& machine) { return CallLast(machine, true); }
bool Reduce(PickleMachine& machine) { return CallLast(machine, false); }
bool Memoize(PickleMachine& machine) { return machine.RememberNext(); }

// All opcodes of protocol 5, because errors name also unsupported opcodes.
constexpr PickleOpcode kOpcodes[] = {
    {'(', "MARK", Mark},
    {'.', "STOP", Stop},
    {'0', "POP", nullptr},
    {'1', "POP_MARK", nullptr},
    {'2', "DUP", nullptr},
    {'F', "FLOAT", nullptr},
    {'I', "INT", nullptr},
    {'J', "BININT", Int<int32_t>},
    {'K', "BININT1", Int<uint8_t>},
    {'L', "LONG", nullptr},
    {'M', "BININT2", Int<uint16_t>},
    {'N', "NONE", None},
    {'P', "PERSID", nullptr},
    {'Q', "BINPERSID", PersistentId},
    {'R', "REDUCE", Reduce},
    {'S', "STRING", nullptr},
    {'T', "BINSTRING", OldString<uint32_t>},
    {'U', "SHORT_BINSTRING", OldString<uint8_t>},
    {'V', "UNICODE", nullptr},
    {'X', "BINUNICODE", Unicode<uint32_t>},
    {'a', "APPEND", Append},
    {'b', "BUILD", Build},
    {'c', "GLOBAL", Global},
    {'d', "DICT", nullptr},
    {'}', "EMPTY_DICT", Empty<PickleType::kDict>},
    {'e', "APPENDS", Appends<PickleType::kList>},
    {'g', "GET", nullptr},
    {'h', "BINGET", Get<uint8_t>},
    {'i', "INST", nullptr},
    {'j', "LONG_BINGET", Get<uint32_t>},
    {'l', "LIST", nullptr},
    {']', "EMPTY_LIST", Empty<PickleType::kList>},
    {'o', "OBJ", nullptr},
    {'p', "PUT", nullptr},
    {'q', "BINPUT", Put<uint8_t>},
    {'r', "LONG_BINPUT", Put<uint32_t>},
    {'s', "SETITEM", SetItem},
    {'t', "TUPLE", FromMark<PickleType::kTuple>},
    {')', "EMPTY_TUPLE", Empty<PickleType::kTuple>},
    {'u', "SETITEMS", SetItems},
    {'G', "BINFLOAT", Float},
    {'B', "BINBYTES", Binary<uint32_t>},
    {'C', "SHORT_BINBYTES", Binary<uint8_t>},
    {0x80, "PROTO", Proto},
    {0x81, "NEWOBJ", NewObject},
    {0x82, "EXT1", nullptr},
    {0x83, "EXT2", nullptr},
    {0x84, "EXT4", nullptr},
    {0x85, "TUPLE1", TupleOf<1>},
    {0x86, "TUPLE2", TupleOf<2>},
    {0x87, "TUPLE3", TupleOf<3>},
    {0x88, "NEWTRUE", Bool<true>},
    {0x89, "NEWFALSE", Bool<false>},
    {0x8a, "LONG1", Long<uint8_t>},
    {0x8b, "LONG4", Long<uint32_t>},
    {0x8c, "SHORT_BINUNICODE", Unicode<uint8_t>},
    {0x8d, "BINUNICODE8", Unicode<uint64_t>},
    {0x8e, "BINBYTES8", nullptr},
    {0x8f, "EMPTY_SET", Empty<PickleType::kSet>},
    {0x90, "ADDITEMS", Appends<PickleType::kSet>},
    {0x91, "FROZENSET", FromMark<PickleType::kSet>},
    {0x92, "NEWOBJ_EX", nullptr},
    {0x93, "STACK_GLOBAL", StackGlobal},
    {0x94, "MEMOIZE", Memoize},
    {0x95, "FRAME", Frame},
    {0x96, "BYTEARRAY8", nullptr},
    {0x97, "NEXT_BUFFER", nullptr},
    {0x98, "READONLY_BUFFER", nullptr},
};

}  // namespace

const PickleOpcode* FindPickleOpcode(unsigned char code) {
  static const std::array<const PickleOpcode*, 256> by_code = [] {
    std::array<const PickleOpcode*, 256> all = {};
    for (const PickleOpcode& opcode : kOpcodes) all[opcode.code] = &opcode;
    return all;
  }();
  return by_code[code];
}

}  // namespace dslaunch
