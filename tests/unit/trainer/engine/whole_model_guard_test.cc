// Tests that programs whose ranks hold different parts of a model are refused, and that similar
// programs with whole models are accepted.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>

#include <mutex>

#include "dslaunch/engine.h"
#include "dslaunch/pipeline.h"
#include "tests/unit/trainer/expect_refused.h"
#include "tests/unit/trainer/ranks.h"

namespace dslaunch::whole_model_guard_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Sum over the ranks of a group: SumForward in the forward pass, SumBackward in the backward pass.
struct SumForward : torch::autograd::Function<SumForward> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x,
                            const ProcessGroup* group) {
    at::Tensor sum = x.clone();
    group->AllReduce(sum);
    return sum;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0], at::Tensor()};
  }
};
struct SumBackward : torch::autograd::Function<SumBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const ProcessGroup* group) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    at::Tensor sum = gradients[0].clone();
    reinterpret_cast<const ProcessGroup*>(context->saved_data["group"].toInt())->AllReduce(sum);
    return {sum, at::Tensor()};
  }
};

enum class Where { kNowhere, kForward, kBackward };

// A model with a hidden layer, of which each rank of `tensor_group` may hold some columns.
struct Part : torch::nn::Module {
  Part(const ProcessGroup* group, Where exchanges) : tensor_group(group), where(exchanges) {
    first = register_module("first", torch::nn::Linear(5, 4));
    last = register_module("last", torch::nn::Linear(4, 3));
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = first(input).relu();
    if (where == Where::kBackward) x = SumBackward::apply(x, tensor_group);
    x = last(x);
    return where == Where::kForward ? SumForward::apply(x, tensor_group) : x;
  }
  const ProcessGroup* tensor_group;
  Where where;
  torch::nn::Linear first{nullptr}, last{nullptr};
};

// Makes a model. One at a time, because ranks are threads and share the default generator.
std::shared_ptr<Part> Make(uint64_t seed, const ProcessGroup* tensor_group, Where where) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::manual_seed(seed);
  return std::make_shared<Part>(tensor_group, where);
}

std::string Config(int stage, const std::string& more = "") {
  return R"({"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1,
             "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
             "zero_optimization": {"stage": )" +
         std::to_string(stage) + R"(, "stage3_param_persistence_threshold": 0})" + more + "}";
}

void Train(Engine<Part>& engine) {
  for (int step = 0; step < 2; ++step) {
    engine.Backward(engine.Loss(engine.Forward(at::ones({4, 5})), at::arange(4).remainder(3)));
    engine.Step();
  }
}

// Runs `rank` on four ranks, at several ZeRO stages. Ranks 0 and 1 hold the parts of a model, ranks
// 2 and 3 the parts of another copy.
void InFourRanks(const std::function<void(const ProcessGroup& world, const ProcessGroup& tensor,
                                          const ProcessGroup& data, int stage)>& rank) {
  for (const int stage : {0, 2, 3}) {
    const auto run = [&](const ProcessGroup& world) {
      const int own = world.rank(), pair = own / 2 * 2, side = own % 2;
      const ProcessGroup tensor =
          MakeSubgroup(world, {pair, pair + 1}, "tensor" + std::to_string(pair));
      const ProcessGroup data =
          MakeSubgroup(world, {side, side + 2}, "data" + std::to_string(side));
      rank(world, tensor, data, stage);
      world.Barrier();
    };
    for (const std::exception_ptr& error : RunRanks(4, run)) EXPECT_EQ(TextOf(error), "");
  }
}

TEST(WholeModelGuardTest, RejectsOneEngineForAllParts) {
  for (const Where where : {Where::kForward, Where::kBackward}) {
    InFourRanks([&](const ProcessGroup& world, const ProcessGroup& tensor, const ProcessGroup&,
                    int stage) {
      auto engine = Initialize(Config(stage), Make(1 + world.rank() % 2, &tensor, where), world);
      engine.SetTrain();
      const std::string group = world.rank() < 2 ? "ranks 0 and 1" : "ranks 2 and 3";
      ExpectRefused(
          [&] { Train(engine); }, ExitCode::kBadInput,
          AllOf(HasSubstr("exchanges tensors in a group of " + group),
                HasSubstr("some of those that this engine gives the same parameters, ranks 0, "
                          "1, 2 and 3"),
                HasSubstr("tensor parallelism"), HasSubstr("PipelineModule")));
    });
  }
}

TEST(WholeModelGuardTest, RejectsAnEngineForEachPart) {
  for (const Where where : {Where::kForward, Where::kBackward}) {
    InFourRanks([&](const ProcessGroup& world, const ProcessGroup& tensor, const ProcessGroup& data,
                    int stage) {
      auto engine = Initialize(Config(stage), Make(1 + world.rank() % 2, &tensor, where), data);
      engine.SetTrain();
      const std::string other = "rank " + std::to_string(world.rank() ^ 1);
      ExpectRefused([&] { Train(engine); }, ExitCode::kBadInput,
                    AllOf(HasSubstr("of which " + other +
                                    " is not among those that this engine gives the "
                                    "same parameters"),
                          HasSubstr("by the norm of its own ranks' parameters only")));
    });
  }
}

TEST(WholeModelGuardTest, RejectsPartsByTheirValues) {
  for (const int stage : {0, 2, 3}) {
    const auto run = [&](const ProcessGroup& world) {
      auto engine =
          Initialize(Config(stage), Make(1 + world.rank(), &world, Where::kForward), world);
      engine.SetTrain();
      ExpectRefused([&] { Train(engine); }, ExitCode::kBadInput,
                    AllOf(HasSubstr("the parameter first.weight was not the same on rank 0 and "
                                    "rank 1"),
                          HasSubstr("the same seed")));
      world.Barrier();
    };
    for (const std::exception_ptr& error : RunRanks(2, run)) EXPECT_EQ(TextOf(error), "");
  }
}

TEST(WholeModelGuardTest, RejectsPartOfPipelineStage) {
  InFourRanks([](const ProcessGroup& world, const ProcessGroup& tensor, const ProcessGroup& data,
                 int stage) {
    if (stage == 3) return;
    for (const Where where : {Where::kForward, Where::kBackward}) {
      const auto exchange = [&](const at::Tensor& x) {
        return where == Where::kForward ? SumForward::apply(x, &tensor)
                                        : SumBackward::apply(x, &tensor);
      };
      // With partition "uniform" no layers are built only to count them, which threads with a
      // shared generator could not do.
      PipelineEngine engine = InitializePipeline(
          Config(stage, R"(, "pipeline": {"partition": "uniform"})"),
          {.layers = {LayerSpec<torch::nn::Linear>(5, 3), LayerFunction(exchange)}}, data);
      engine.SetTrain(true);
      const std::string other = "rank " + std::to_string(world.rank() ^ 1);
      ExpectRefused(
          [&] {
            engine.TrainBatch([] {
              return MicroBatch{{at::ones({4, 5})}, {at::arange(4).remainder(3)}};
            });
          },
          ExitCode::kBadInput,
          AllOf(HasSubstr("of which " + other + " is not among"), HasSubstr("tensor parallelism")));
    }
  });
}

TEST(WholeModelGuardTest, AcceptsExchangesBetweenWholeModels) {
  InFourRanks([](const ProcessGroup& world, const ProcessGroup& tensor, const ProcessGroup& data,
                 int stage) {
    // An exchange in the forward pass is accepted, as in synchronized batch norm.
    auto same = Initialize(Config(stage), Make(1, &world, Where::kForward), world);
    same.SetTrain();
    Train(same);
    // Different initial values are accepted, because all ranks get the values of rank 0.
    auto apart = Initialize(Config(stage), Make(world.rank(), nullptr, Where::kNowhere), world);
    apart.SetTrain();
    Train(apart);
    // Between passes, any exchange is allowed.
    at::Tensor metric = at::ones({1});
    tensor.AllReduce(metric);
    Train(apart);
    // Two models, each on some of the ranks, are accepted.
    auto two = Initialize(Config(stage), Make(world.rank() % 2, nullptr, Where::kNowhere), data);
    two.SetTrain();
    Train(two);
  });
}

}  // namespace
}  // namespace dslaunch::whole_model_guard_test
