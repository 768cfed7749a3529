// Tests that engines whose ranks divide parameters over the tensor axis train like one engine that
// has all parameters.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <cmath>
#include <map>
#include <string>

#include "dslaunch/engine.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "trainer/config/engine_config.h"
#include "trainer/engine/engine_batch.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/optim/optimizer.h"
#include "trainer/shards/shards.h"

namespace dslaunch::divided_parameters_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kSamples = 8, kHidden = 6, kWords = 7;

// Returns how each parameter is cut for rank `part` of `parts`: rows, columns, and padded rows. All
// ranks hold the same copy of `shift`; the first rank's is canonical. `bias` is whole.
std::map<std::string, ParameterCut> CutsOf(int part, int parts) {
  const auto cut = [&](const std::vector<int64_t>& shape, size_t dim) {
    const int64_t size = (shape[dim] + parts - 1) / parts;
    return ParameterCut{shape, CutShard(shape, dim, part * size, (part + 1) * size)};
  };
  return {{"up", cut({kHidden, 5}, 0)},
          {"down", cut({3, kHidden}, 1)},
          {"scale", cut({kWords}, 0)},
          {"shift", {{3}, Shard::Whole(3), /*is_copy=*/part > 0}}};
}

at::Tensor Initial(const std::string& name, at::IntArrayRef shape) {
  const at::Tensor whole = at::zeros(shape);
  return ((at::arange(whole.numel()) + static_cast<double>(name.size())).sin() * 0.4).view(shape);
}

struct Net : torch::nn::Module {
  Net(const ProcessGroup* tensor_group, int part, int parts) : group(tensor_group) {
    const int64_t words = (kWords + parts - 1) / parts;
    const auto add = [&](const std::string& name, const at::Tensor& values) {
      return register_parameter(name, values.clone());
    };
    up = add("up", Initial("up", {kHidden, 5}).chunk(parts)[part]);
    bias = add("bias", Initial("bias", {3}));
    shift = add("shift", Initial("shift", {3}));
    down = add("down", Initial("down", {3, kHidden}).chunk(parts, 1)[part].contiguous());
    const at::Tensor padded =
        at::constant_pad_nd(Initial("scale", {kWords}), {0, words * parts - kWords});
    scale = add("scale", padded.narrow(0, part * words, words));
    first_word = part * words;
  }

  // Returns the same result on all ranks of the tensor axis: the sum over all of them. In the
  // backward pass, each rank gets the gradient of its own part.
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor own = at::tanh(x.matmul(up.t())).matmul(down.t());
    const at::Tensor words = at::arange(first_word, first_word + scale.numel(), at::kFloat);
    own = own + (words.sin() * (words < kWords) * scale).sum() * x.slice(1, 0, 1);
    if (group != nullptr) {
      at::Tensor all = own.detach().clone();
      group->AllReduce(all);
      own = own + (all - own.detach());
    }
    return own + bias * shift;
  }

  const ProcessGroup* group;
  at::Tensor up, bias, down, scale, shift;
  int64_t first_word;
};

EngineConfig Config(OptimizerConfig::Type type, int zero) {
  EngineConfig config;
  config.batch = {kSamples, kSamples, 1};
  config.optimizer.emplace().type = type;
  config.optimizer->lr = 0.02;
  config.optimizer->weight_decay = 0.1;
  config.gradient_clipping = 0.05;
  config.zero.stage = zero;
  config.zero.param_persistence_threshold = 4;
  return config;
}

// One rank of a world in which each replica is divided into `tensor` parts.
class Rank {
 public:
  Rank(const ProcessGroup& world, const EngineConfig& config, int tensor)
      : ranks_(MakeRanks(world, tensor)),
        net(ranks_->tensor(), ranks_->place().part, tensor),
        core(config, net, ranks_, Passes::kBatches) {}

  // Trains one step. Returns the norm of the gradients before clipping.
  double Train() {
    const int64_t share = kSamples / ranks_->mesh().data;
    const at::Tensor all =
        (at::arange(kSamples * 5, at::kFloat) * 0.37 + static_cast<double>(core.global_steps()))
            .sin()
            .view({kSamples, 5});
    const at::Tensor x = all.narrow(0, ranks_->place().replica * share, share);
    EngineBatch batch(core);
    batch.Begin(/*trains=*/true);
    const at::Tensor loss = (net.forward(x) - x.narrow(1, 1, 3)).square().mean();
    const at::Tensor root = batch.Root(loss);
    batch.BeforeBackward(/*last=*/true);
    torch::autograd::backward({root}, {});
    batch.AfterBackward();
    batch.End();
    batch.Step();
    return core.grad_norm();
  }

 private:
  static std::shared_ptr<const MeshGroups> MakeRanks(const ProcessGroup& world, int tensor) {
    const Mesh mesh{.data = world.world_size() / tensor, .tensor = tensor};
    ModelCut cut;
    if (tensor > 1) cut.divided = CutsOf(mesh.PlaceOf(world.rank()).part, tensor);
    auto ranks = std::make_shared<MeshGroups>(world, mesh, cut);
    if (tensor > 1) {
      RecordSubgroup(*ranks->tensor());
      RecordSubgroup(ranks->data());
    }
    return ranks;
  }

  std::shared_ptr<const MeshGroups> ranks_;

 public:
  Net net;
  EngineCore core;
};

void InRanks(int ranks, const std::function<void(const ProcessGroup&)>& rank) {
  for (const std::exception_ptr& error : RunRanks(ranks, rank)) EXPECT_EQ(TextOf(error), "");
}

struct Trained {
  std::vector<double> norms;
  std::map<std::string, at::Tensor> weights;
};

Trained TrainWhole(const EngineConfig& config, int steps) {
  Trained trained;
  InRanks(1, [&](const ProcessGroup& group) {
    Rank rank(group, config, 1);
    for (int step = 0; step < steps; ++step) trained.norms.push_back(rank.Train());
    for (const TensorPart& part : rank.core.ModelState()) {
      trained.weights[part.name] = part.tensor.detach().clone();
    }
  });
  return trained;
}

void ExpectNear(const at::Tensor& got, const at::Tensor& wanted, const std::string& what) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  EXPECT_LT((got - wanted).abs().max().item<double>(), 1e-5) << what;
}

using Type = OptimizerConfig::Type;

TEST(DividedParametersTest, TrainsLikeOneUndividedEngine) {
  for (const Type type : {Type::kAdamW, Type::kLamb}) {
    const Trained one = TrainWhole(Config(type, 0), 4);
    for (const int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE("ZeRO " + std::to_string(zero) + ", " + OptimizerTypeName(type));
      InRanks(4, [&](const ProcessGroup& group) {
        Rank rank(group, Config(type, zero), 2);
        for (const double norm : one.norms) EXPECT_NEAR(rank.Train(), norm, 1e-5 * norm);
        for (const auto& [name, parameter] : rank.net.named_parameters().pairs()) {
          ExpectNear(rank.core.GetFullFp32Parameter(parameter), one.weights.at(name), name);
        }
      });
    }
  }
}

TEST(DividedParametersTest, CheckpointsLoadInEveryOtherDivision) {
  const Trained one = TrainWhole(Config(Type::kAdamW, 0), 5);
  const struct {
    int ranks, tensor, zero;
  } layouts[] = {{1, 1, 0}, {4, 2, 0}, {4, 2, 1}, {4, 2, 3}, {3, 3, 0}, {2, 1, 3}};
  const TempDir folder;
  for (const auto& from : layouts) {
    const std::string tag = std::to_string(from.ranks) + "_" + std::to_string(from.tensor) + "_" +
                            std::to_string(from.zero);
    InRanks(from.ranks, [&](const ProcessGroup& group) {
      Rank rank(group, Config(Type::kAdamW, from.zero), from.tensor);
      for (int step = 0; step < 3; ++step) rank.Train();
      rank.core.SaveCheckpoint(folder.path(), tag);
    });
    for (const auto& to : layouts) {
      SCOPED_TRACE(tag + " on " + std::to_string(to.ranks) + " ranks, tensor " +
                   std::to_string(to.tensor) + ", ZeRO " + std::to_string(to.zero));
      InRanks(to.ranks, [&](const ProcessGroup& group) {
        Rank rank(group, Config(Type::kAdamW, to.zero), to.tensor);
        rank.Train();
        ASSERT_TRUE(rank.core.LoadCheckpoint(folder.path(), tag));
        for (size_t step = 3; step < 5; ++step) {
          EXPECT_NEAR(rank.Train(), one.norms[step], 1e-4 * one.norms[step]);
        }
      });
    }
  }
}

TEST(DividedParametersTest, SetsWholeValues) {
  InRanks(4, [&](const ProcessGroup& group) {
    for (const int zero : {0, 3}) {
      Rank rank(group, Config(Type::kAdamW, zero), 2);
      const at::Tensor value = at::arange(3 * kHidden, at::kFloat).view({3, kHidden});
      rank.core.SetFullFp32Parameter(rank.net.down, value);
      EXPECT_TRUE(at::equal(rank.core.GetFullFp32Parameter(rank.net.down), value));
      try {
        rank.core.SetFullFp32Parameter(rank.net.down, rank.net.down);
        ADD_FAILURE() << "set a part";
      } catch (const std::exception& error) {
        EXPECT_THAT(error.what(), HasSubstr("not that of the parameter, [3, 6]"));
      }
    }
  });
}

TEST(DividedParametersTest, AllRanksNameNonFiniteGradientOfOnePart) {
  const auto errors = RunRanks(4, [&](const ProcessGroup& group) {
    Rank rank(group, Config(Type::kAdamW, 0), 2);
    if (group.rank() % 2 == 1) {  // part 1 of both replicas
      rank.net.down.register_hook([](const at::Tensor& gradient) { return gradient * NAN; });
    }
    rank.Train();
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_THAT(TextOf(error), HasSubstr("the gradient of down is not finite"));
  }
}

}  // namespace
}  // namespace dslaunch::divided_parameters_test
