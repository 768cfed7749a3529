#include "trainer/compat/horovod/optimizer_state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "trainer/base/train_error.h"

namespace dslaunch::horovod {
namespace {

struct Model {
  torch::nn::Linear linear{3, 2};
  at::Tensor input = at::ones({4, 3});

  Model() {
    const at::NoGradGuard no_grad;
    linear->weight.fill_(0.5), linear->bias.fill_(-0.25);
  }
  void Step(torch::optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    linear->forward(input).square().sum().backward();
    optimizer.step();
  }
};

// Expects that restoring the numbers of an optimizer, even after other steps, makes the next step
// give the same result.
template <class Optimizer, class Options>
void ExpectGivesBack(const Options& options) {
  Model model;
  Optimizer optimizer(model.linear->parameters(), options);
  const std::vector<double> fresh = OptimizerNumbers(optimizer);
  model.Step(optimizer);
  const std::vector<double> numbers = OptimizerNumbers(optimizer);
  EXPECT_EQ(fresh.size(), numbers.size());
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : SetOptimizerNumbers(optimizer, numbers))
    tensors.push_back(tensor.clone());
  const at::Tensor weight = model.linear->weight.detach().clone();
  const at::Tensor bias = model.linear->bias.detach().clone();
  model.Step(optimizer);
  const at::Tensor expected = model.linear->weight.detach().clone();
  optimizer.param_groups()[0].options().set_lr(9);
  model.Step(optimizer);

  Model other;
  Optimizer same(other.linear->parameters(), options);
  for (auto& [to, of] : {std::pair(&model, &optimizer), std::pair(&other, &same)}) {
    const at::NoGradGuard no_grad;
    to->linear->weight.copy_(weight), to->linear->bias.copy_(bias);
    const std::vector<at::Tensor> own = SetOptimizerNumbers(*of, numbers);
    ASSERT_EQ(own.size(), tensors.size());
    for (size_t i = 0; i < own.size(); ++i) own[i].copy_(tensors[i]);
    const at::AutoGradMode grad(true);
    to->Step(*of);
    EXPECT_TRUE(at::equal(to->linear->weight, expected));
    // Restoring also works back to an optimizer that has made no step.
    EXPECT_TRUE(SetOptimizerNumbers(*of, fresh).empty() ||
                (std::is_same_v<Optimizer, torch::optim::Adagrad>));
    EXPECT_EQ(OptimizerNumbers(*of), fresh);
  }
}

TEST(OptimizerState, RestoresStateOfEachKind) {
  ExpectGivesBack<torch::optim::SGD>(torch::optim::SGDOptions(0.01).momentum(0.9));
  ExpectGivesBack<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true));
  ExpectGivesBack<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01));
  ExpectGivesBack<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01).momentum(0.5));
  ExpectGivesBack<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.05));
}

TEST(OptimizerState, RejectsStateOfAnotherKind) {
  Model model;
  torch::optim::SGD sgd(model.linear->parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::Adam adam(model.linear->parameters(), torch::optim::AdamOptions(0.1));
  torch::optim::LBFGS lbfgs(model.linear->parameters());
  EXPECT_THROW(SetOptimizerNumbers(sgd, OptimizerNumbers(adam)), TrainError);
  EXPECT_THROW(OptimizerNumbers(lbfgs), TrainError);
}

}  // namespace
}  // namespace dslaunch::horovod
