// Finds and calls the parts that a user's shared library registers (dslaunch/plugin.h).
#pragma once

#include <functional>
#include <string>

namespace dslaunch {

struct PluginPart {
  std::string path;  // path of the library
  std::string key;   // key of the recipe that gives the path, for messages: "model.path"
  std::string kind;  // "model", "dataset" or "metric"
  std::string name;  // empty for the model
};

// Returns the symbol of the part. The library stays loaded. Throws TrainError kBadInput, naming the
// library, if it cannot be loaded, was built for another dslaunch or LibTorch, or has no such part;
// the error then suggests a name.
const void* FindPluginPart(const PluginPart& part);

// Calls `call`, which runs code of the library, and converts what it throws to a TrainError
// kBadInput: FailPlugin's with "<doing>: <message>".
void CallPlugin(const PluginPart& part, const std::string& doing,
                const std::function<void()>& call);

// Throws kBadInput: "the plugin libmine.so <problem>", or for a dataset "the plugin libmine.so
// cannot be used: the dataset shapes <problem>".
[[noreturn]] void FailPlugin(const PluginPart& part, const std::string& problem);

}  // namespace dslaunch
