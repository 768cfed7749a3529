// Tests that mistakes of programs are refused with the name of the tensor or function and a hint,
// at every ZeRO stage.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "dslaunch/engine.h"
#include "tests/unit/trainer/expect_refused.h"
#include "tests/unit/trainer/ranks.h"

namespace dslaunch::engine_misuse_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(5, 7));
    last = register_module("last", torch::nn::Linear(7, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return last(first(x).relu()); }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

struct Words : torch::nn::Module {
  Words() {
    embedding = register_module(
        "embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 5).sparse(true)));
    last = register_module("last", torch::nn::Linear(5, 3));
  }
  at::Tensor forward(const at::Tensor& words) { return last(embedding(words)); }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear last{nullptr};
};

// Makes a model. One at a time, because ranks are threads and share the default generator.
template <class M>
std::shared_ptr<M> Make() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::manual_seed(3);
  return std::make_shared<M>();
}

std::string Config(int stage, const std::string& more = "") {
  return R"({"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0,
             "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
             "zero_optimization": {"stage": )" +
         std::to_string(stage) + R"(, "stage3_param_persistence_threshold": 0})" + more + "}";
}

void TrainStep(Engine<Net>& engine) {
  engine.Backward(engine.Loss(engine.Forward(at::ones({4, 5})), at::arange(4).remainder(3)));
  engine.Step();
}

void InTwoRanks(const std::function<void(const ProcessGroup&)>& rank) {
  for (const std::exception_ptr& error : RunRanks(2, rank)) EXPECT_EQ(TextOf(error), "");
}

// Models for the concepts behind the static assertions of Engine.
struct ForwardOfTwo : torch::nn::Module {
  at::Tensor forward(at::Tensor a, const at::Tensor& b) { return a + b; }
};
struct ForwardTemplate : torch::nn::Module {
  template <class... Inputs>
  at::Tensor forward(Inputs&&... inputs);
};
struct NoForward : torch::nn::Module {
  at::Tensor Forward(at::Tensor a) { return a; }
};
static_assert(HasForward<ForwardOfTwo> && HasForward<ForwardTemplate>);
static_assert(HasForward<torch::nn::SequentialImpl> && HasForward<torch::nn::LinearImpl>);
static_assert(!HasForward<NoForward> && !HasForward<torch::nn::Module>);
static_assert(ForwardTakes<ForwardOfTwo, at::Tensor, at::Tensor>);
static_assert(!ForwardTakes<ForwardOfTwo, at::Tensor>);

TEST(EngineMisuseTest, RejectsSecondEngineOfOneModel) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    InTwoRanks([&](const ProcessGroup& group) {
      const auto model = Make<Net>();
      std::optional<Engine<Net>> engine = Initialize(Config(stage), model, group);
      ExpectRefused([&] { Initialize(Config(0), model, group); }, ExitCode::kBadInput,
                    AllOf(HasSubstr("the parameter first.weight belongs to another engine"),
                          HasSubstr("destroy that engine first")));
      const at::Tensor before = engine->core().GetFullFp32Parameter(model->last->weight);
      TrainStep(*engine);
      EXPECT_FALSE(at::equal(engine->core().GetFullFp32Parameter(model->last->weight), before))
          << "the first engine trains on";
      engine.reset();
      if (stage < 3) {
        engine.emplace(Initialize(Config(0), model, group));
        return TrainStep(*engine);
      }
      ExpectRefused([&] { Initialize(Config(0), model, group); }, ExitCode::kBadInput,
                    AllOf(HasSubstr("the parameter first.weight is sharded by another engine"),
                          HasSubstr("its values are lost; construct the model anew")));
    });
  }
}

TEST(EngineMisuseTest, RejectsFrozenParameterThatAnotherEngineShards) {
  InTwoRanks([&](const ProcessGroup& group) {
    const auto model = Make<Net>();
    for (at::Tensor& parameter : model->first->parameters()) parameter.set_requires_grad(false);
    auto engine = Initialize(Config(3), model, group);
    for (at::Tensor& parameter : model->first->parameters()) parameter.set_requires_grad(true);
    ExpectRefused([&] { Initialize(Config(0), model->first.ptr(), group); }, ExitCode::kBadInput,
                  AllOf(HasSubstr("the parameter weight is sharded by another engine"),
                        HasSubstr("destroy that engine first")));
  });
}

TEST(EngineMisuseTest, RejectsModelWithHooks) {
  struct Hook : torch::autograd::PostAccumulateGradHook {
    void operator()(const torch::autograd::Variable&) override {}
  };
  InTwoRanks([&](const ProcessGroup& group) {
    const auto model = Make<Net>();
    torch::autograd::impl::set_post_acc_grad_hooks(model->last->bias, std::make_unique<Hook>());
    ExpectRefused([&] { Initialize(Config(0), model, group); }, ExitCode::kBadInput,
                  AllOf(HasSubstr("the parameter last.bias has a post-accumulate-grad hook"),
                        HasSubstr("remove the hook before Initialize")));
  });
}

TEST(EngineMisuseTest, RejectsParameterUnfrozenLater) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    InTwoRanks([&](const ProcessGroup& group) {
      const auto model = Make<Net>();
      model->last->weight.set_requires_grad(false);
      auto engine = Initialize(Config(stage), model, group);
      TrainStep(engine);
      model->last->weight.set_requires_grad(true);
      ExpectRefused([&] { TrainStep(engine); }, ExitCode::kBadInput,
                    AllOf(HasSubstr("the parameter last.weight requires a gradient"),
                          HasSubstr("unfreeze it before Initialize")));
      model->last->weight.set_requires_grad(false);
      TrainStep(engine);
    });
  }
}

// A parameter that is frozen later counts with a zero gradient in every mode. The other parameters
// train as in one process.
TEST(EngineMisuseTest, TrainsOnWithParameterFrozenLater) {
  std::vector<std::string> modes;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const std::string precision :
         {"", R"(, "bf16": {"enabled": true})", R"(, "fp16": {"enabled": true})"}) {
      modes.push_back(Config(stage, precision));
    }
  }
  for (const std::string parallel : {R"({"mode": "parameter_server"})", R"({"mode": "powersgd"})",
                                     R"({"mode": "local_sgd", "inner_steps": 1})"}) {
    modes.push_back(Config(0, R"(, "parallel": )" + parallel));
  }
  for (const std::string& config : modes) {
    SCOPED_TRACE(config);
    InTwoRanks([&](const ProcessGroup& group) {
      const auto model = Make<Net>();
      auto engine = Initialize(config, model, group);
      const auto alone = Make<Net>();
      torch::optim::SGD sgd(alone->parameters(), 0.1);
      for (const bool frozen : {false, true, true, false}) {
        for (const auto& net : {model, alone}) net->first->weight.set_requires_grad(!frozen);
        TrainStep(engine);
        sgd.zero_grad();
        CrossEntropy(alone->forward(at::ones({4, 5})), at::arange(4).remainder(3)).backward();
        sgd.step();
        EXPECT_EQ(model->first->weight.requires_grad(), !frozen);
      }
      for (const auto& item : alone->named_parameters()) {
        const at::Tensor got =
            engine.core().GetFullFp32Parameter(*model->named_parameters().find(item.key()));
        const bool rounds = config.find("16") != std::string::npos;
        EXPECT_TRUE(at::allclose(got, item.value().detach(), 0, rounds ? 1e-2 : 1e-6))
            << item.key();
      }
    });
  }
}

TEST(EngineMisuseTest, RejectsLateFreezeIfEachNeedsAGradient) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    std::string config = Config(stage);
    config.replace(config.find("\"stage\""), 0, R"("ignore_unused_parameters": false, )");
    InTwoRanks([&](const ProcessGroup& group) {
      const auto model = Make<Net>();
      auto engine = Initialize(config, model, group);
      TrainStep(engine);
      model->first->weight.set_requires_grad(false);
      ExpectRefused([&] { TrainStep(engine); }, ExitCode::kBadInput,
                    AllOf(HasSubstr("the parameter first.weight got no gradient"),
                          HasSubstr("frozen after the engine was made")));
    });
  }
}

TEST(EngineMisuseTest, RejectsSparseEmbedding) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const std::string precision : {"", R"(, "bf16": {"enabled": true})"}) {
      for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
             auto engine = Initialize(Config(stage, precision), Make<Words>(), group);
             engine.Backward(engine.Forward(at::arange(4)).sum());
           })) {
        EXPECT_THAT(TextOf(error),
                    AllOf(HasSubstr("the gradient of the parameter embedding.weight is sparse"),
                          HasSubstr("sparse(false)")))
            << "stage " << stage << precision;
      }
    }
  }
}

TEST(EngineMisuseTest, RejectsPassesInAnotherThreadAtStage3) {
  InTwoRanks([&](const ProcessGroup& group) {
    const auto model = Make<Net>();
    auto engine = Initialize(Config(3), model, group);
    const auto refused = AllOf(HasSubstr("only in the thread that made the engine"),
                               HasSubstr("for example those of last"));
    std::thread([&] {
      ExpectRefused([&] { engine.Forward(at::ones({4, 5})); }, ExitCode::kBadInput, refused);
      ExpectRefused([&] { GatheredParameters(engine.core(), model->parameters()); },
                    ExitCode::kBadInput, refused);
    }).join();
    const at::Tensor loss =
        engine.Loss(engine.Forward(at::ones({4, 5})), at::arange(4).remainder(3));
    std::thread([&] {
      ExpectRefused([&] { engine.Backward(loss); }, ExitCode::kBadInput, refused);
    }).join();
    TrainStep(engine);
  });
}

// A model that runs a part of its forward pass in another thread.
struct Towers : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    return std::async(std::launch::async, [&] { return tower(*this, x); }).get();
  }
  std::function<at::Tensor(Towers&, const at::Tensor&)> tower;
  at::Tensor square = register_parameter("square", at::ones({5, 5}) * 0.1);
  at::Tensor row = register_parameter("row", at::ones({5}) * 0.2);
  at::Tensor kernel = register_parameter("kernel", at::ones({2, 1, 1, 1}));
};

TEST(EngineMisuseTest, RejectsReadsInAnotherThreadAtStage3) {
  const std::map<std::string, std::function<at::Tensor(Towers&, const at::Tensor&)>> towers = {
      {"linear", [](Towers& m, const at::Tensor& x) { return at::linear(x, m.square, m.row); }},
      {"mm", [](Towers& m, const at::Tensor& x) { return at::mm(x, m.square); }},
      {"mul", [](Towers& m, const at::Tensor& x) { return x * m.row; }},
      {"sum", [](Towers& m, const at::Tensor& x) { return x + m.row.sum(); }},
      {"a view", [](Towers& m, const at::Tensor& x) { return x * m.row.unsqueeze(0).detach(); }},
      {"a transposed one", [](Towers& m, const at::Tensor&) { return m.square.t().contiguous(); }},
      {"cat",
       [](Towers& m, const at::Tensor& x) {
         return x.sum() * at::cat({m.row, m.row});
       }},
      {"embedding",
       [](Towers& m, const at::Tensor&) { return at::embedding(m.square, at::arange(4)); }},
      {"convolution",
       [](Towers& m, const at::Tensor& x) {
         return at::conv2d(x.view({1, 1, 4, 5}), m.kernel);
       }},
      {"layer norm",
       [](Towers& m, const at::Tensor& x) { return at::layer_norm(x, {5}, m.row, m.row); }},
      {"copy", [](Towers& m, const at::Tensor& x) { return at::zeros({5}).copy_(m.row) + x; }},
      {"item", [](Towers& m, const at::Tensor& x) { return x * m.row[0].item<double>(); }},
      {"address",
       [](Towers& m, const at::Tensor& x) {
         return x * static_cast<const float*>(m.row.const_data_ptr())[0];
       }},
  };
  for (const auto& [name, tower] : towers) {
    SCOPED_TRACE(name);
    InTwoRanks([&, run = tower](const ProcessGroup& group) {
      const auto model = Make<Towers>();
      auto engine = Initialize(Config(3), model, group);
      const at::Tensor x = at::arange(20, at::kFloat).view({4, 5}) / 20;
      model->tower = run;
      ExpectRefused([&] { engine.Forward(x); }, ExitCode::kBadInput,
                    AllOf(HasSubstr("the parameters of "), HasSubstr("ZeRO stage 3"),
                          HasSubstr("another thread"), HasSubstr("dslaunch::GatheredParameters")));
      const at::Tensor wanted = run(*Make<Towers>(), x).detach();
      {
        const GatheredParameters gathered(engine.core(), model->parameters());
        EXPECT_TRUE(at::allclose(engine.Forward(x).detach(), wanted));
      }
    });
  }
}

TEST(EngineMisuseTest, RejectsReadsAfterStage3EngineIsDestroyed) {
  for (const bool gathered : {false, true}) {
    InTwoRanks([&](const ProcessGroup& group) {
      const auto model = Make<Net>();
      std::optional<Engine<Net>> engine = Initialize(Config(3), model, group);
      std::optional<GatheredParameters> held;
      if (gathered) held.emplace(engine->core(), model->parameters());
      engine.reset();
      const auto text_of = [&](const std::function<void()>& read) -> std::string {
        try {
          read();
          return "accepted";
        } catch (const c10::Error& error) {
          return error.what_without_backtrace();
        }
      };
      const auto lost = AllOf(HasSubstr("the parameters of first were sharded by an engine"),
                              HasSubstr("their values are lost; read them before that"));
      const at::NoGradGuard no_grad;
      EXPECT_THAT(text_of([&] { model->first->weight.sum(); }), lost);
      EXPECT_THAT(text_of([&] { model->first->weight.t().contiguous(); }), lost);
      EXPECT_THAT(text_of([&] { model->first->weight.data_ptr<float>(); }), lost);
      EXPECT_THAT(text_of([&] { model->forward(at::ones({4, 5})); }), lost);
    });
  }
}

TEST(EngineMisuseTest, RejectsGatheredParametersThatOutliveEngine) {
  for (int stage = 0; stage <= 3; ++stage) {
    InTwoRanks([&](const ProcessGroup& group) {
      const auto model = Make<Net>();
      std::optional<Engine<Net>> engine = Initialize(Config(stage), model, group);
      ExpectRefused(
          [&] {
            const GatheredParameters held(engine->core(), model->parameters(), 1);
            engine.reset();
          },
          ExitCode::kUsage,
          AllOf(HasSubstr("what rank 1 wrote is lost"), HasSubstr("before the engine")));
    });
  }
}

}  // namespace
}  // namespace dslaunch::engine_misuse_test
