// Writes a pickle of protocol 2 with the few opcodes that torch.load(weights_only=True) accepts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch {

// Writes the values of a pickle in order. Begin... and End... enclose the content of a container;
// in a dict, keys and values alternate. Call Take() after exactly one value was written.
class PickleWriter {
 public:
  PickleWriter();
  void None();
  void Bool(bool value);
  void Int(int64_t value);
  void Double(double value);
  // Writes a string. Precondition: `text` is UTF-8.
  void String(std::string_view text);
  void BeginTuple();
  void EndTuple();
  void BeginList();
  void EndList();
  void BeginDict();
  void EndDict();
  void Global(std::string_view module, std::string_view name);
  // Turns the last value, a tuple, into a persistent ID.
  void Reference();
  // Calls the second to last value with the last value, a tuple of arguments, as Python's REDUCE
  // does.
  void Reduce();
  // Makes an object without calling __init__. The class is the second to last value, and its
  // arguments are the last value, a tuple.
  void NewObject();
  // Sets the state of the second to last value, an object, to the last value.
  void Build();
  // Ends the pickle and returns its bytes.
  std::string Take();

 private:
  std::string bytes_;
};

}  // namespace dslaunch
