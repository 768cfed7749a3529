// Defines a model of any size for `dslaunch train --plugin` that needs no random numbers for its
// initial weights. The model has an embedding of bytes, `depth` residual blocks of two layers
// (width -> inner -> width), and a head.
#include <dslaunch/plugin.h>

#include <string>
#include <vector>

namespace {

constexpr int64_t kTokens = 256;

struct Block : torch::nn::Module {
  // Scales the weights so that values neither grow nor vanish over `depth` blocks.
  Block(int64_t width, int64_t inner, int64_t depth)
      : up(register_parameter(
            "up", at::full({inner, width}, 1.0 / static_cast<double>(width), at::kBFloat16))),
        down(register_parameter(
            "down",
            at::full({width, inner}, 1.0 / static_cast<double>(inner * depth), at::kBFloat16))) {}
  at::Tensor forward(const at::Tensor& x) {
    return x + at::linear(at::relu(at::linear(x, up)), down);
  }
  at::Tensor up, down;
};

class Stack : public dslaunch::Model {
 public:
  explicit Stack(const dslaunch::PluginInput& input) {
    const auto width = static_cast<int64_t>(input.Number("width"));
    const auto inner = static_cast<int64_t>(input.Number("inner"));
    bytes_ = register_parameter("bytes", at::full({kTokens, width}, 1e-2, at::kBFloat16));
    const auto depth = static_cast<int64_t>(input.Number("depth"));
    for (int64_t i = 0; i < depth; ++i) {
      blocks_.push_back(register_module("block" + std::to_string(i),
                                        std::make_shared<Block>(width, inner, depth)));
    }
    head_ = register_parameter("head", at::full({kTokens, width}, 1e-3, at::kBFloat16));
  }

  at::Tensor forward(const at::Tensor& tokens) override {
    at::Tensor x = at::embedding(bytes_, tokens);
    for (const auto& block : blocks_) x = block->forward(x);
    return at::linear(x, head_);
  }

 private:
  at::Tensor bytes_, head_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

}  // namespace

DSLAUNCH_PLUGIN(Stack)
