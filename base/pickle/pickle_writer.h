// Writes a pickle of protocol 2 with the few opcodes that torch.load(weights_only=True) accepts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch {

// Writes values in order. Begin... and End... enclose the content of a container; in a dict, keys
// and values alternate. Precondition of Take: exactly one value was written.
class PickleWriter {
 public:
  PickleWriter();
  void None();
  void Bool(bool value);
  void Int(int64_t value);
  void Double(double value);
  void String(std::string_view text);  // must be UTF-8
  void BeginTuple();
  void EndTuple();
  void BeginList();
  void EndList();
  void BeginDict();
  void EndDict();
  void Global(std::string_view module, std::string_view name);
  // Makes the last value, a tuple, a persistent ID.
  void Reference();
  // Calls the value before the last one with the last value, a tuple of arguments.
  void Reduce();
  // Makes an object, without calling __init__, of the class before the last value, which is a tuple
  // of arguments.
  void NewObject();
  // Sets the state of the object before the last value to the last value.
  void Build();
  // Ends the pickle and returns it.
  std::string Take();

 private:
  std::string bytes_;
};

}  // namespace dslaunch
