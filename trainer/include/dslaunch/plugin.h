// Lets a shared library add your own model to `dslaunch train`:
//
//   class Mine : public dslaunch::Model {
//    public:
//     explicit Mine(const dslaunch::PluginInput& input);
//     at::Tensor forward(const at::Tensor& images) override;
//   };
//   DSLAUNCH_PLUGIN(Mine)
//
// The recipe then has `model: {type: plugin, path: libmine.so}`. A library may also define any
// number of named data sets and metrics:
//
//   DSLAUNCH_DATASET(shapes, Shapes)  // data: {type: plugin, plugin: libmine.so, name: shapes}
//   DSLAUNCH_METRIC(top_3, TopThree)  // run: {metrics: [top_3], metrics_plugin: libmine.so}
//
// `dslaunch train --list --plugin libmine.so` lists the parts of a library. In CMake, after
// find_package(dslaunch): add_library(mine MODULE mine.cc), and link mine to dslaunch::plugin. The
// library must be built against the LibTorch that dslaunch-train uses.
#pragma once

#include <torch/headeronly/version.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dslaunch/dataset.h"
#include "dslaunch/metric.h"
#include "dslaunch/model.h"
#include "dslaunch/version.h"

namespace dslaunch {

namespace plugin_detail {

// Returns the value of `name`. Throws std::invalid_argument if `numbers` does not contain it; the
// message names `section`, the section of the recipe.
inline double NumberOf(const std::map<std::string, double>& numbers, const std::string& section,
                       const std::string& name) {
  const auto found = numbers.find(name);
  if (found == numbers.end())
    throw std::invalid_argument(section + "." + name + " is missing or not a number");
  return found->second;
}

}  // namespace plugin_detail

// Input of the constructor of a plugin's model. The constructor throws a std::exception if the
// model cannot be created; the exception's what() is shown to the user. The same applies to
// DatasetInput and MetricInput.
struct PluginInput {
  std::vector<int64_t> input_shape;       // shape of one sample: {C, H, W}, {F} or {T}
  std::string params_json;                // JSON text of the recipe's model.params, an object
  std::map<std::string, double> numbers;  // numeric values of model.params, by name

  double Number(const std::string& name) const {
    return plugin_detail::NumberOf(numbers, "model.params", name);
  }
};

// Input of the constructor of a plugin's data set, which is called once for the training samples
// and once for the evaluation samples. Nothing is evaluated if the evaluation data set has size()
// 0, or if the function that creates it returns null.
struct DatasetInput {
  bool train = true;
  std::string path;                       // value of the recipe's data.path; may be empty
  std::string params_json;                // JSON text of the recipe's data.params, an object
  std::map<std::string, double> numbers;  // numeric values of data.params, by name

  double Number(const std::string& name) const {
    return plugin_detail::NumberOf(numbers, "data.params", name);
  }
};

// Input of the constructor of a plugin's metric.
struct MetricInput {
  std::string name;
  std::string params_json;  // JSON text of the recipe's run.metrics_params.NAME, an object
  std::map<std::string, double> numbers;  // numeric values of run.metrics_params.NAME, by name

  double Number(const std::string& key) const {
    return plugin_detail::NumberOf(numbers, "run.metrics_params." + name, key);
  }
};

// The type of a plugin's exported symbol dslaunch_plugin, which creates the plugin's model. The
// symbols dslaunch_dataset_NAME and dslaunch_metric_NAME have the types DatasetSymbol and
// MetricSymbol.
struct PluginSymbol {
  // The versions that the plugin was compiled with. The trainer reads the other fields only if this
  // stamp equals the trainer's stamp.
  const char* stamp;
  std::shared_ptr<Model> (*make)(const PluginInput& input);
};
struct DatasetSymbol {
  const char* stamp;
  std::shared_ptr<Dataset> (*make)(const DatasetInput& input);
};
struct MetricSymbol {
  const char* stamp;
  std::shared_ptr<Metric> (*make)(const MetricInput& input);
};

#define DSLAUNCH_PLUGIN_TEXT_INNER(x) #x
#define DSLAUNCH_PLUGIN_TEXT(x) DSLAUNCH_PLUGIN_TEXT_INNER(x)
#define DSLAUNCH_PLUGIN_STAMP                              \
  "dslaunch " DSLAUNCH_VERSION ", LibTorch " TORCH_VERSION \
  ", _GLIBCXX_USE_CXX11_ABI=" DSLAUNCH_PLUGIN_TEXT(_GLIBCXX_USE_CXX11_ABI)

namespace plugin_detail {

// Creates the model of DSLAUNCH_PLUGIN, whose argument is a class M or a function F.
template <class M>
std::shared_ptr<Model> MakePluginModel(const PluginInput& input) {
  return std::make_shared<M>(input);
}
template <auto F>
std::shared_ptr<Model> MakePluginModel(const PluginInput& input) {
  return F(input);
}
// Creates the objects of DSLAUNCH_DATASET and DSLAUNCH_METRIC, whose arguments are a class or a
// function.
template <class D>
std::shared_ptr<Dataset> MakePluginDataset(const DatasetInput& input) {
  return std::make_shared<D>(input);
}
template <auto F>
std::shared_ptr<Dataset> MakePluginDataset(const DatasetInput& input) {
  return F(input);
}
template <class M>
std::shared_ptr<Metric> MakePluginMetric(const MetricInput& input) {
  return std::make_shared<M>(input);
}
template <auto F>
std::shared_ptr<Metric> MakePluginMetric(const MetricInput& input) {
  return F(input);
}

}  // namespace plugin_detail

}  // namespace dslaunch

// Exports the model of a plugin. Use it once per library, outside of any namespace.
// `class_or_function` is a class derived from dslaunch::Model with a constructor that takes a
// PluginInput, or a function from PluginInput to a std::shared_ptr of such a class.
#define DSLAUNCH_PLUGIN(class_or_function)                      \
  extern "C" __attribute__((visibility("default")))             \
  const ::dslaunch::PluginSymbol dslaunch_plugin;               \
  extern "C" const ::dslaunch::PluginSymbol dslaunch_plugin = { \
      DSLAUNCH_PLUGIN_STAMP, &::dslaunch::plugin_detail::MakePluginModel<class_or_function>};

// Exports a data set of a plugin. Use it once per data set, outside of any namespace. `name` is the
// value of data.name: letters, digits and _. `class_or_function` is a class derived from
// dslaunch::Dataset with a constructor that takes a DatasetInput, or a function from DatasetInput
// to a std::shared_ptr of such a class.
#define DSLAUNCH_DATASET(name, class_or_function)                        \
  extern "C" __attribute__((visibility("default")))                      \
  const ::dslaunch::DatasetSymbol dslaunch_dataset_##name;               \
  extern "C" const ::dslaunch::DatasetSymbol dslaunch_dataset_##name = { \
      DSLAUNCH_PLUGIN_STAMP, &::dslaunch::plugin_detail::MakePluginDataset<class_or_function>};

// Exports a metric of a plugin. Use it once per metric, like DSLAUNCH_DATASET, with
// dslaunch::Metric and MetricInput. `name` is the metric's name in run.metrics.
#define DSLAUNCH_METRIC(name, class_or_function)                       \
  extern "C" __attribute__((visibility("default")))                    \
  const ::dslaunch::MetricSymbol dslaunch_metric_##name;               \
  extern "C" const ::dslaunch::MetricSymbol dslaunch_metric_##name = { \
      DSLAUNCH_PLUGIN_STAMP, &::dslaunch::plugin_detail::MakePluginMetric<class_or_function>};
