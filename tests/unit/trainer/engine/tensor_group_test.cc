// Tests programs whose own layers are divided over ranks (InitializeOptions::tensor_group). Ranks
// are forked, so this test must not start threads outside of ranks.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/spawn.h"
#include "trainer/base/train_error.h"

namespace dslaunch::tensor_group_test {
namespace {

constexpr int64_t kSamples = 8, kIn = 5, kHidden = 6, kOut = 3;
constexpr int kSteps = 4;

void Expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("not so: " + what);
}

void ExpectNear(double got, double wanted, const std::string& what) {
  Expect(std::abs(got - wanted) <= 1e-5 * std::max(1.0, std::abs(wanted)),
         what + c10::str(": ", got, " instead of ", wanted));
}

// Returns the message of the TrainError that `call` throws; "" if it does not throw.
std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const TrainError& error) {
    return error.what();
  }
  return "";
}

void ExpectRefused(const std::function<void()>& call, const std::string& words) {
  const std::string text = Refusal(call);
  Expect(text.find(words) != std::string::npos, "\"" + text + "\" has \"" + words + "\"");
}

// Returns initial values. `value` shifts them; it differs between ranks for a whole parameter, of
// which all ranks must get the first rank's values.
at::Tensor Initial(at::IntArrayRef shape, double value) {
  const at::Tensor flat = at::zeros(shape).view(-1);
  return ((at::arange(flat.numel()) + value).sin() * 0.4).view(shape);
}

// A row-parallel and a column-parallel layer. The sum of the parts is the same on all ranks, and
// each rank gets the gradient of its own part.
struct Net : torch::nn::Module {
  Net(const ProcessGroup* tensor_group, int part, int parts, double bias_value)
      : group(tensor_group) {
    up = register_parameter("up", Initial({kHidden, kIn}, 1).chunk(parts)[part].clone());
    down = register_parameter("down", Initial({kOut, kHidden}, 2).chunk(parts, 1)[part].clone());
    bias = register_parameter("bias", Initial({kOut}, bias_value));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor sum = at::tanh(x.matmul(up.t())).matmul(down.t());
    if (group != nullptr) {
      at::Tensor all = sum.detach().clone();
      group->AllReduce(all);
      sum = sum + (all - sum.detach());
    }
    return sum + bias;
  }
  const ProcessGroup* group;
  at::Tensor up, down, bias;
};

std::map<std::string, ParameterCut> CutsOf(int part, int parts) {
  const int64_t rows = kHidden / parts;
  const Shard up = {part * rows * kIn, rows * kIn, kHidden * kIn, 0, rows * kIn};
  const Shard down = {part * rows, rows, kHidden, 0, rows * kOut};
  return {{"up", {{kHidden, kIn}, up}}, {"down", {{kOut, kHidden}, down}}};
}

std::string Config(int zero, int steps, const std::string& more = "") {
  return c10::str(R"({"train_batch_size": )", kSamples * steps,
                  R"(, "gradient_accumulation_steps": )", steps,
                  R"(, "gradient_clipping": 0.05, "zero_optimization": {"stage": )", zero,
                  R"(, "stage3_param_persistence_threshold": 4},
                  "optimizer": {"type": "AdamW", "params": {"lr": 0.02}})",
                  more, "}");
}

at::Tensor Samples(int64_t micro_batch) {
  return (at::arange(kSamples * kIn, at::kFloat) * 0.37 + static_cast<double>(micro_batch))
      .sin()
      .view({kSamples, kIn});
}

at::Tensor SquareError(const at::Tensor& output, const at::Tensor& target) {
  return (output - target).square().mean();
}

// The groups and the engine of one of `replicas` x `parts` ranks.
struct Rank {
  Rank(const ProcessGroup& world, int parts, const std::string& config)
      : part(world.rank() % parts),
        replica(world.rank() / parts),
        replicas(world.world_size() / parts) {
    InitializeOptions options;
    if (parts > 1) {
      std::vector<int> ranks;
      for (int i = 0; i < parts; ++i) ranks.push_back(replica * parts + i);
      tensor.emplace(world.Subgroup(ranks, "tensor" + std::to_string(replica)));
      options.tensor_group = &*tensor;
      options.cuts = CutsOf(part, parts);
    }
    net = std::make_shared<Net>(tensor ? &*tensor : nullptr, part, parts, 3 + world.rank());
    engine.emplace(Initialize(config, net, world, SquareError, options));
    engine->SetTrain();
  }

  // Trains one step. Returns the norm of its gradients.
  double Step() {
    const int64_t share = kSamples / replicas;
    for (int64_t i = 0; i < engine->core().accumulation_steps(); ++i) {
      const at::Tensor x = Samples(engine->core().micro_steps()).narrow(0, replica * share, share);
      engine->Backward(engine->Loss(engine->Forward(x), x.narrow(1, 1, kOut)));
      engine->Step();
    }
    return engine->core().grad_norm();
  }

  int part, replica, replicas;
  std::optional<ProcessGroup> tensor;
  std::shared_ptr<Net> net;
  std::optional<Engine<Net>> engine;
};

TEST(TensorGroupTest, TrainsLikeOneProcess) {
  for (const int steps : {1, 2}) {
    for (const int zero : {0, 1, 2, 3}) {
      Spawn(4, [&](int) {
        const ProcessGroup world = InitProcessGroup({.device = "cpu"});
        const ProcessGroup self =
            world.Subgroup({world.rank()}, "self" + std::to_string(world.rank()));
        Rank one(self, 1, Config(0, steps));
        Rank rank(world, 2, Config(zero, steps, R"(, "tensor_parallel": {"autotp_size": 2})"));
        for (int i = 0; i < kSteps; ++i) ExpectNear(rank.Step(), one.Step(), "norm");
        for (const auto& [mine, whole] :
             {std::pair(&rank.net->up, &one.net->up), std::pair(&rank.net->down, &one.net->down),
              std::pair(&rank.net->bias, &one.net->bias)}) {
          const at::Tensor full = rank.engine->core().GetFullFp32Parameter(*mine);
          ExpectNear((full - *whole).abs().max().item<double>(), 0, "weights");
        }
      });
    }
  }
}

TEST(TensorGroupTest, RejectsGroupsAndCutsThatDoNotFit) {
  Spawn(4, [](int) {
    const ProcessGroup world = InitProcessGroup({.device = "cpu"});
    const int own = world.rank(), other = (own + 2) % 4;
    const ProcessGroup pair =
        world.Subgroup({own / 2 * 2, own / 2 * 2 + 1}, "pair" + std::to_string(own / 2));
    const ProcessGroup apart = world.Subgroup({std::min(own, other), std::max(own, other)},
                                              "apart" + std::to_string(own % 2));
    const auto initialize = [&](const ProcessGroup* group, std::map<std::string, ParameterCut> cuts,
                                const std::string& more = "") {
      InitializeOptions options;
      options.tensor_group = group;
      options.cuts = std::move(cuts);
      const auto net = std::make_shared<Net>(group, own % 2, 2, 3);
      Initialize(Config(0, 1, more), net, world, SquareError, options);
    };
    const std::map<std::string, ParameterCut> cuts = CutsOf(own % 2, 2);
    ExpectRefused([&] { initialize(&apart, cuts); }, "it must have consecutive ranks");
    ExpectRefused([&] { initialize(nullptr, cuts); }, "cuts needs a tensor_group");
    ExpectRefused([&] { initialize(nullptr, {}, R"(, "tensor_parallel": {"autotp_size": 2})"); },
                  "set InitializeOptions::tensor_group and cuts");
    ExpectRefused([&] { initialize(&pair, cuts, R"(, "tensor_parallel": {"autotp_size": 4})"); },
                  "autotp_size is 4, but the program's tensor_group has 2 ranks");
    ExpectRefused([&] { initialize(&pair, cuts, R"(, "cuda_graph": true)"); },
                  "cannot be combined with tensor_parallel");
    ExpectRefused([&] { initialize(&pair, cuts, R"(, "parallel": {"mode": "powersgd"})"); },
                  "cannot be combined with tensor_parallel");
    auto wrong = cuts;
    wrong["left"] = wrong["up"];
    ExpectRefused([&] { initialize(&pair, wrong); }, "left, which is not a parameter");
    wrong = cuts;
    wrong["up"] = CutsOf(0, 2)["up"];
    ExpectRefused([&] { initialize(&pair, wrong); },
                  "the parameter up has cuts that overlap or leave a hole");
    wrong = cuts;
    if (own % 2 == 1) wrong.erase("down");
    ExpectRefused([&] { initialize(&pair, wrong); }, "the parameter down is");
    ExpectRefused(
        [&] {
          initialize(&pair, cuts,
                     own == 3 ? R"(, "zero_allow_untested_optimizer": true)"
                              : R"(, "fp16": {"enabled": true})");
        },
        "configuration");
  });
}

TEST(TensorGroupTest, EndsRankWhoseBackwardPassThrew) {
  Spawn(2, [](int) {
    const ProcessGroup world = InitProcessGroup({.device = "cpu"});
    Rank rank(world, 2, Config(0, 1));
    rank.Step();
    bool throws = true;
    rank.net->down.register_hook([&](const at::Tensor& gradient) {
      if (throws) throw std::runtime_error("out of memory");
      return gradient;
    });
    bool thrown = false;
    try {
      rank.Step();
    } catch (const std::exception&) {
      thrown = true;
    }
    Expect(thrown, "the backward pass throws");
    throws = false;
    ExpectRefused([&] { rank.Step(); }, "let the exception end the rank");
  });
}

TEST(TensorGroupTest, RejectsOptimizersThatNeedWholeParameters) {
  Spawn(2, [](int) {
    const ProcessGroup world = InitProcessGroup({.device = "cpu"});
    const ProcessGroup pair = world.Subgroup({0, 1}, "pair");
    InitializeOptions options;
    options.tensor_group = &pair;
    options.cuts = CutsOf(world.rank(), 2);
    struct Other : torch::optim::SGD {
      using SGD::SGD;
    };
    options.make_optimizer = [](const std::vector<NamedTensor>& weights) {
      std::vector<at::Tensor> tensors;
      for (const NamedTensor& weight : weights) tensors.push_back(weight.tensor);
      return std::make_shared<Other>(tensors, torch::optim::SGDOptions(0.1));
    };
    const auto net = std::make_shared<Net>(&pair, world.rank(), 2, 3);
    ExpectRefused(
        [&] { Initialize(R"({"train_batch_size": 8})", net, world, SquareError, options); },
        "must treat each element by itself");
  });
}

}  // namespace
}  // namespace dslaunch::tensor_group_test
