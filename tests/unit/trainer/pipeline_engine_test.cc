// Whole pipelines, with a process for each rank: the ranks are forked, so nothing here may start a
// thread outside of them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <sstream>

#include "dslaunch/pipeline.h"
#include "dslaunch/spawn.h"
#include "tests/support/strict_backend.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/world_of_one.h"
#include "trainer/program/explain.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using torch::nn::Linear;

constexpr int64_t kWords = 11, kWidth = 8, kClasses = 5;

// ---- A model with everything that may go from one layer to the next ----

struct Start : torch::nn::Module {
  Start() : words(register_module("words", torch::nn::Embedding(kWords, kWidth))) {}
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& tokens) {
    return {words(tokens), tokens};
  }
  torch::nn::Embedding words;
};

// Its last output lies otherwise in memory, needs a gradient, and nobody reads it.
struct Block : torch::nn::Module {
  Block() : linear(register_module("linear", Linear(kWidth, kWidth))) {}
  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(const at::Tensor& x,
                                                         const at::Tensor& tokens) {
    return {x + at::tanh(linear(x)), tokens, x.transpose(1, 2) * 2};
  }
  Linear linear;
};

struct Take : torch::nn::Module {
  Take() : linear(register_module("linear", Linear(kWidth, kWidth))) {}
  Tensors forward(const Tensors& inputs) { return {linear(inputs.at(0)), inputs.at(1)}; }
  Linear linear;
};

struct Masked : torch::nn::Module {
  Masked() : linear(register_module("linear", Linear(kWidth, kWidth))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    return at::where(mask.unsqueeze(-1), linear(x), x);
  }
  Linear linear;
};

std::vector<PipelineLayer> Layers() {
  return {LayerSpec<Start>(),
          LayerSpec<Block>(),
          LayerSpec<Take>(),
          LayerFunction([](const at::Tensor& x, const at::Tensor& tokens) {
            return std::tuple(x, tokens.gt(5));
          }),
          LayerSpec<Masked>(),
          LayerFunction([](const at::Tensor& x) { return at::tanh(x); }),
          LayerSpec<Linear>(kWidth, kWidth),
          LayerSpec<Linear>(kWidth, kClasses)};
}

// The same in one piece.
struct Whole : torch::nn::Module {
  Whole()
      : start(register_module("0", std::make_shared<Start>())),
        block(register_module("1", std::make_shared<Block>())),
        take(register_module("2", std::make_shared<Take>())),
        masked(register_module("4", std::make_shared<Masked>())),
        inner(register_module("6", Linear(kWidth, kWidth))),
        head(register_module("7", Linear(kWidth, kClasses))) {}
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = start->words(tokens);
    x = take->linear(x + at::tanh(block->linear(x)));
    return head(inner(at::tanh(masked->forward(x, tokens.gt(5)))));
  }
  std::shared_ptr<Start> start;
  std::shared_ptr<Block> block;
  std::shared_ptr<Take> take;
  std::shared_ptr<Masked> masked;
  Linear inner, head;
};

// ---- Data ----

struct Place {
  int64_t step = 0, replica = 0, micro_batch = 0;
};

// Of another shape each time where it is `ragged`.
MicroBatch Data(const Place& place, bool ragged) {
  at::Generator generator = at::detail::createCPUGenerator(
      static_cast<uint64_t>(1000 * place.step + 100 * place.replica + place.micro_batch));
  const int64_t samples = ragged ? 1 + (place.micro_batch * 5 + place.step) % 3 : 2;
  const int64_t length = ragged ? 2 + (place.micro_batch + place.replica) % 4 : 3;
  return {{at::randint(kWords, {samples, length}, generator, at::kLong)},
          {at::randint(kClasses, {samples, length}, generator, at::kLong)}};
}

MicroBatchSource Source(int64_t step, int64_t replica, bool ragged) {
  return [place = Place{step, replica, 0}, ragged]() mutable {
    const MicroBatch data = Data(place, ragged);
    ++place.micro_batch;
    return data;
  };
}

// ---- Ranks ----

void Expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("not so: " + what);
}

void ExpectNear(double got, double wanted, const std::string& what) {
  Expect(std::abs(got - wanted) <= 1e-6 * std::max(1.0, std::abs(wanted)),
         what + c10::str(": ", got, " instead of ", wanted));
}

struct Setting {
  int stages = 1;
  int64_t micro_batches = 1;
  const char* schedule = "1f1b";
  int virtual_stages = 1;
  int zero = 0;
  int interval = 0;
  bool sgd = false;  // with momentum and without clipping; else AdamW with clipping
  const char* rank_order = "pipe_data";
};

std::string ToText(const Setting& setting) {
  return c10::str(setting.schedule, " of ", setting.stages, " x ", setting.virtual_stages,
                  " stages, ", setting.micro_batches, " micro-batches, ZeRO ", setting.zero,
                  setting.sgd ? ", SGD" : "", ", interval ", setting.interval);
}

std::string ConfigOf(const Setting& setting, bool pipeline = true) {
  std::string text =
      c10::str(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": )",
               setting.micro_batches, R"(, "zero_optimization": {"stage": )", setting.zero,
               R"(}, "optimizer": )",
               setting.sgd ? R"({"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}},
                               "gradient_clipping": 0)"
                           : R"({"type": "AdamW", "params": {"lr": 0.01}},
                               "gradient_clipping": 0.3)");
  if (pipeline) {
    text += c10::str(R"(, "pipeline": {"stages": )", setting.stages, R"(, "schedule": ")",
                     setting.schedule, R"(", "virtual_stages": )", setting.virtual_stages,
                     R"(, "partition": "uniform", "activation_checkpoint_interval": )",
                     setting.interval, R"(, "rank_order": ")", setting.rank_order, "\"}");
  }
  return text + "}";
}

struct StepResult {
  double loss = 0, grad_norm = 0;
};

// What one process computes with the whole model, whose first values are those of `first`.
class Reference {
 public:
  Reference(const Setting& setting, int64_t replicas,
            const std::map<std::string, at::Tensor>& first)
      : replicas_(replicas) {
    auto model = std::make_shared<Whole>();
    const at::NoGradGuard no_grad;
    for (const auto& parameter : model->named_parameters()) {
      parameter.value().copy_(first.at(parameter.key()));
    }
    Setting whole = setting;
    whole.micro_batches *= replicas;
    whole.zero = 0;
    engine_.emplace(Initialize(ConfigOf(whole, /*pipeline=*/false), std::move(model), World()));
  }

  StepResult Step(int64_t step, bool ragged) {
    double sum = 0;
    const int64_t all = engine_->core().accumulation_steps();
    for (int64_t i = 0; i < all; ++i) {
      const MicroBatch data = Data({step, i % replicas_, i / replicas_}, ragged);
      const at::Tensor loss = engine_->Loss(engine_->Forward(data.inputs[0]), data.targets[0]);
      sum += loss.item<double>();
      engine_->Backward(loss);
      engine_->Step();
    }
    return {sum / static_cast<double>(all), engine_->core().grad_norm()};
  }

  Engine<Whole>& engine() { return *engine_; }

 private:
  int64_t replicas_;
  std::optional<Engine<Whole>> engine_;
};

// The parameters of all stages. Collective.
std::map<std::string, at::Tensor> AllParameters(PipelineEngine& engine, const ProcessGroup& group) {
  std::map<std::string, at::Tensor> all;
  for (const auto& parameter : Whole().named_parameters()) {
    const at::Tensor* own = nullptr;
    const auto held = engine.module().named_parameters();
    if (held.contains(parameter.key())) own = &held[parameter.key()];
    at::Tensor value = at::zeros_like(parameter.value()).detach();
    at::Tensor holders = at::zeros({1});
    if (own != nullptr) {
      const GatheredParameters whole(engine.core(), engine.module().parameters());
      value.copy_(own->detach());
      holders.fill_(1);
    } else {
      const GatheredParameters whole(engine.core(), engine.module().parameters());
    }
    group.AllReduce(value);
    group.AllReduce(holders);
    all[parameter.key()] = value / holders;
  }
  return all;
}

// Trains a few steps and compares each of them with one process.
void ExpectParity(const ProcessGroup& group, const Setting& setting, bool ragged) {
  const std::string what = ToText(setting) + (ragged ? ", ragged" : "");
  at::manual_seed(7);
  PipelineEngine engine = InitializePipeline(ConfigOf(setting), {.layers = Layers()}, group);
  Expect(engine.num_stages() == setting.stages, what + ": as many stages");
  Reference reference(setting, engine.num_replicas(), AllParameters(engine, group));
  for (int64_t step = 0; step < 3; ++step) {
    const double loss = engine.TrainBatch(Source(step, engine.replica(), ragged));
    const StepResult wanted = reference.Step(step, ragged);
    const std::string where = what + ", step " + std::to_string(step);
    ExpectNear(loss, wanted.loss, where + ": loss");
    ExpectNear(engine.core().grad_norm(), wanted.grad_norm, where + ": norm of the gradient");
  }
  const std::map<std::string, at::Tensor> trained = AllParameters(engine, group);
  for (const auto& parameter : reference.engine().model().named_parameters()) {
    Expect(at::allclose(trained.at(parameter.key()), parameter.value(), 1e-5, 1e-6),
           what + ": the trained " + parameter.key());
  }
}

void InRanks(int ranks, const std::function<void(ProcessGroup& group)>& body) {
  EXPECT_NO_THROW(Spawn(ranks, [&](int) {
    ProcessGroup group = InitProcessGroup();
    body(group);
    group.Finish();
  }));
}

std::vector<Setting> SettingsFor(int stages) {
  std::vector<Setting> settings;
  for (const int64_t micro_batches : {1, 2, 4, 8}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
      settings.push_back({.stages = stages, .micro_batches = micro_batches, .schedule = schedule});
    }
    settings.push_back({.stages = stages,
                        .micro_batches = micro_batches,
                        .schedule = "interleaved",
                        .virtual_stages = 2});
  }
  return settings;
}

struct Grid {
  int stages, replicas;
};

class PipelineEngineTest : public testing::TestWithParam<Grid> {};
INSTANTIATE_TEST_SUITE_P(Grids, PipelineEngineTest,
                         testing::Values(Grid{1, 1}, Grid{2, 1}, Grid{4, 1}, Grid{1, 2},
                                         Grid{2, 2}),
                         [](const auto& test) {
                           return "Stages" + std::to_string(test.param.stages) + "Replicas" +
                                  std::to_string(test.param.replicas);
                         });

TEST_P(PipelineEngineTest, TrainsAsOneProcessDoes) {
  const auto [stages, replicas] = GetParam();
  InRanks(stages * replicas, [&](ProcessGroup& group) {
    for (const Setting& setting : SettingsFor(stages)) {
      ExpectParity(group, setting, /*ragged=*/false);
    }
  });
}

TEST_P(PipelineEngineTest, MicroBatchesMayDifferInShape) {
  const auto [stages, replicas] = GetParam();
  InRanks(stages * replicas, [&](ProcessGroup& group) {
    for (Setting setting : SettingsFor(stages)) {
      if (setting.micro_batches == 2) continue;
      setting.sgd = true;
      ExpectParity(group, setting, /*ragged=*/true);
    }
  });
}

}  // namespace
}  // namespace dslaunch
