// Writes a pickle of protocol 2 with the few opcodes that torch.load(weights_only=True) accepts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch {

// Values are written in order; Begin... and End... enclose the content of a container. In a dict,
// keys and values alternate. Precondition of Take: exactly one value was written.
class PickleWriter {
 public:
  PickleWriter();
  void None();
  void Bool(bool value);
  void Int(int64_t value);
  void Double(double value);
  void String(std::string_view text);  // UTF-8
  void BeginTuple();
  void EndTuple();
  void BeginList();
  void EndList();
  void BeginDict();
  void EndDict();
  void Global(std::string_view module, std::string_view name);
  // Makes the last value, a tuple, a persistent id.
  void Reference();
  // Calls the value before the last one with the last one, a tuple of arguments.
  void Reduce();
  // Makes an object of the class before the last value, a tuple of arguments, without __init__.
  void NewObject();
  // Sets the state of the object before the last value to that one.
  void Build();
  // Ends the pickle and returns it.
  std::string Take();

 private:
  std::string bytes_;
};

}  // namespace dslaunch
