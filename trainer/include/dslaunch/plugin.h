// A model of your own for `dslaunch train`, in a shared library:
//
//   class Mine : public dslaunch::Model {
//    public:
//     explicit Mine(const dslaunch::PluginInput& input);
//     at::Tensor forward(const at::Tensor& images) override;
//   };
//   DSLAUNCH_PLUGIN(Mine)
//
// with `model: {type: plugin, path: libmine.so}` in the recipe. In CMake, after
// find_package(dslaunch): add_library(mine MODULE mine.cc), and link it to dslaunch::plugin. It
// must be built against the LibTorch that dslaunch-train uses.
#pragma once

#include <torch/headeronly/version.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dslaunch/model.h"
#include "dslaunch/version.h"

namespace dslaunch {

// What a plugin's model is made from. Throw any std::exception if it cannot be: its what() is shown
// to the user.
struct PluginInput {
  std::vector<int64_t> input_shape;       // of one sample: {C, H, W}, {F} or {T}
  std::string params_json;                // model.params of the recipe: an object
  std::map<std::string, double> numbers;  // those of its values that are numbers, by name

  double Number(const std::string& name) const {
    const auto found = numbers.find(name);
    if (found == numbers.end())
      throw std::invalid_argument("model.params." + name + " is missing, or no number");
    return found->second;
  }
};

// The one symbol of a plugin.
struct PluginSymbol {
  // What it was compiled with; the rest is used only where the trainer has the same.
  const char* stamp;
  std::shared_ptr<Model> (*make)(const PluginInput& input);
};

#define DSLAUNCH_PLUGIN_TEXT_INNER(x) #x
#define DSLAUNCH_PLUGIN_TEXT(x) DSLAUNCH_PLUGIN_TEXT_INNER(x)
#define DSLAUNCH_PLUGIN_STAMP                              \
  "dslaunch " DSLAUNCH_VERSION ", LibTorch " TORCH_VERSION \
  ", _GLIBCXX_USE_CXX11_ABI=" DSLAUNCH_PLUGIN_TEXT(_GLIBCXX_USE_CXX11_ABI)

// For DSLAUNCH_PLUGIN: M is a class or F a function.
template <class M>
std::shared_ptr<Model> MakePluginModel(const PluginInput& input) {
  return std::make_shared<M>(input);
}
template <auto F>
std::shared_ptr<Model> MakePluginModel(const PluginInput& input) {
  return F(input);
}

}  // namespace dslaunch

// Once in a library, in no namespace: `class_or_function` is a class derived from dslaunch::Model
// with a constructor from PluginInput, or a function from it to a std::shared_ptr of one.
#define DSLAUNCH_PLUGIN(class_or_function)                      \
  extern "C" __attribute__((visibility("default"), used))       \
  const ::dslaunch::PluginSymbol dslaunch_plugin;               \
  extern "C" const ::dslaunch::PluginSymbol dslaunch_plugin = { \
      DSLAUNCH_PLUGIN_STAMP, &::dslaunch::MakePluginModel<class_or_function>};
