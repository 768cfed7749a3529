// Plugin for evaluation_test.py: a classifier with running statistics of a norm that two layers
// share, so that two stages of a pipeline have the norm.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "dslaunch/plugin.h"

namespace {

class Normed : public dslaunch::Model {
 public:
  explicit Normed(const dslaunch::PluginInput&)
      : first_(register_module("first", torch::nn::Linear(784, 12))),
        norm_(register_module("norm", torch::nn::BatchNorm1d(12))),
        middle_(register_module("middle", torch::nn::Linear(12, 12))),
        last_(register_module("last", torch::nn::Linear(12, 10))) {}

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = images;
    for (const dslaunch::ModelLayer& layer : Layers()) x = layer.forward(x);
    return x;
  }

  std::vector<dslaunch::ModelLayer> Layers() override {
    return {
        {"first",
         {first_.ptr(), norm_.ptr()},
         [this](const at::Tensor& x) { return norm_(first_(x.flatten(1))).relu(); }},
        {"middle", {middle_.ptr()}, [this](const at::Tensor& x) { return middle_(x); }},
        {"last",
         {norm_.ptr(), last_.ptr()},
         [this](const at::Tensor& x) { return last_(norm_(x).relu()); }},
    };
  }

 private:
  torch::nn::Linear first_;
  torch::nn::BatchNorm1d norm_;
  torch::nn::Linear middle_, last_;
};

}  // namespace

DSLAUNCH_PLUGIN(Normed)
