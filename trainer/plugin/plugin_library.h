// Finds and calls the parts that a user's shared library registers (dslaunch/plugin.h).
#pragma once

#include <functional>
#include <string>

namespace dslaunch {

struct PluginPart {
  std::string path;  // path of the shared library
  std::string key;   // key of the path in the recipe, such as "model.path", for messages
  std::string kind;  // "model", "dataset" or "metric"
  std::string name;  // name of the part; empty for the model
};

// Returns the symbol of the part. The library is never unloaded. Throws TrainError kBadInput,
// naming the library, if the library cannot be loaded, was built for another version of dslaunch or
// LibTorch, or does not have the part. In the last case, the message suggests a name.
const void* FindPluginPart(const PluginPart& part);

// Calls `call`, which runs code of the library. Converts an exception to the TrainError of
// FailPlugin with the problem "<doing>: <message>".
void CallPlugin(const PluginPart& part, const std::string& doing,
                const std::function<void()>& call);

// Throws kBadInput with the message "the plugin libmine.so <problem>", or for a dataset "the plugin
// libmine.so cannot be used: the dataset shapes <problem>".
[[noreturn]] void FailPlugin(const PluginPart& part, const std::string& problem);

}  // namespace dslaunch
