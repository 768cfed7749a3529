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

// Input of a plugin's model constructor. If the model cannot be made, throw a std::exception; the
// user sees its what().
struct PluginInput {
  std::vector<int64_t> input_shape;       // shape of one sample: {C, H, W}, {F} or {T}
  std::string params_json;                // model.params of the recipe, a JSON object
  std::map<std::string, double> numbers;  // the numeric values of params, by name

  double Number(const std::string& name) const {
    const auto found = numbers.find(name);
    if (found == numbers.end())
      throw std::invalid_argument("model.params." + name + " is missing or not a number");
    return found->second;
  }
};

// The only exported symbol of a plugin.
struct PluginSymbol {
  // Versions that the plugin was compiled with. The trainer reads the other fields only if its own
  // stamp is equal.
  const char* stamp;
  std::shared_ptr<Model> (*make)(const PluginInput& input);
};

#define DSLAUNCH_PLUGIN_TEXT_INNER(x) #x
#define DSLAUNCH_PLUGIN_TEXT(x) DSLAUNCH_PLUGIN_TEXT_INNER(x)
#define DSLAUNCH_PLUGIN_STAMP                              \
  "dslaunch " DSLAUNCH_VERSION ", LibTorch " TORCH_VERSION \
  ", _GLIBCXX_USE_CXX11_ABI=" DSLAUNCH_PLUGIN_TEXT(_GLIBCXX_USE_CXX11_ABI)

// For DSLAUNCH_PLUGIN: M is a class, F is a function.
template <class M>
std::shared_ptr<Model> MakePluginModel(const PluginInput& input) {
  return std::make_shared<M>(input);
}
template <auto F>
std::shared_ptr<Model> MakePluginModel(const PluginInput& input) {
  return F(input);
}

}  // namespace dslaunch

// Use it once per library, outside of any namespace. `class_or_function` is a class derived from
// dslaunch::Model with a constructor that takes a PluginInput, or a function from PluginInput to a
// std::shared_ptr of such a class.
#define DSLAUNCH_PLUGIN(class_or_function)                      \
  extern "C" __attribute__((visibility("default"), used))       \
  const ::dslaunch::PluginSymbol dslaunch_plugin;               \
  extern "C" const ::dslaunch::PluginSymbol dslaunch_plugin = { \
      DSLAUNCH_PLUGIN_STAMP, &::dslaunch::MakePluginModel<class_or_function>};
