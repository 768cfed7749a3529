// What a user's shared library registers (dslaunch/plugin.h): finding it, and calling it.
#pragma once

#include <functional>
#include <string>

namespace dslaunch {

struct PluginPart {
  std::string path;  // of the library
  std::string key;   // of the recipe that gives the path, for messages: "model.path"
  std::string kind;  // "model", "dataset" or "metric"
  std::string name;  // empty for the model
};

// The symbol of that part. The library stays loaded. Throws TrainError kBadInput, naming the
// library: it cannot be loaded, was built for another dslaunch or LibTorch, or has no such part,
// and then which name was meant.
const void* FindPluginPart(const PluginPart& part);

// What `call`, which runs code of the library, throws becomes a TrainError kBadInput: FailPlugin's
// with "<doing>: <what was thrown>".
void CallPlugin(const PluginPart& part, const std::string& doing,
                const std::function<void()>& call);

// Throws kBadInput: "the plugin libmine.so <problem>", of a dataset "the plugin libmine.so
// cannot be used: the dataset shapes <problem>".
[[noreturn]] void FailPlugin(const PluginPart& part, const std::string& problem);

}  // namespace dslaunch
