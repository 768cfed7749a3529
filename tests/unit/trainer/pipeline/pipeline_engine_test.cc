// Tests whole pipelines with one process for each rank. Ranks are forked, so this test must not
// start threads outside of ranks.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "dslaunch/pipeline.h"
#include "dslaunch/spawn.h"
#include "tests/support/strict_backend.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/world_of_one.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/explain.h"
#include "trainer/pipeline/schedule.h"
#include "trainer/pipeline/schedule_check.h"

namespace dslaunch::pipeline_engine_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using torch::nn::Linear;

constexpr int64_t kWords = 11, kWidth = 8, kClasses = 5;

// ---- A model whose layers pass every kind of output to each other ----

struct Start : torch::nn::Module {
  Start() : words(register_module("words", torch::nn::Embedding(kWords, kWidth))) {}
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& tokens) {
    return {words(tokens), tokens};
  }
  torch::nn::Embedding words;
};

// A layer whose last output is not contiguous, requires a gradient, and is not read by any layer.
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

// The layers of the pipeline as one module.
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

// Returns the data of one micro-batch. `ragged`: whether each micro-batch has a different shape.
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
  bool sgd = false;  // SGD with momentum and without clipping; otherwise AdamW with clipping
  const char* rank_order = "pipe_data";
};

PipelineScheduleType TypeOf(const Setting& setting) {
  using enum PipelineScheduleType;
  for (const PipelineScheduleType type : {kGpipe, kInterleaved, kZeroBubbleH1}) {
    if (setting.schedule == std::string_view(ScheduleTypeName(type))) return type;
  }
  return kOneForwardOneBackward;
}

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

// Trains the whole model M in one process, starting from the values `first`.
template <class M>
class Reference {
 public:
  Reference(const Setting& setting, int64_t replicas,
            const std::map<std::string, at::Tensor>& first)
      : replicas_(replicas) {
    auto model = std::make_shared<M>();
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

  Engine<M>& engine() { return *engine_; }

 private:
  int64_t replicas_;
  std::optional<Engine<M>> engine_;
};

// Returns the parameters of all stages, by their names in M. Must be called on all ranks.
template <class M>
std::map<std::string, at::Tensor> AllParameters(PipelineEngine& engine, const ProcessGroup& group) {
  std::map<std::string, at::Tensor> all;
  for (const auto& parameter : M().named_parameters()) {
    const auto held = engine.module().named_parameters();
    at::Tensor value = at::zeros_like(parameter.value()).detach(), holders = at::zeros({1});
    {
      const GatheredParameters gathered(engine.core(), engine.module().parameters());
      if (const at::Tensor* own = held.find(parameter.key())) {
        value.copy_(own->detach());
        holders.fill_(1);
      }
    }
    group.AllReduce(value);
    group.AllReduce(holders);
    all[parameter.key()] = value / holders;
  }
  return all;
}

// Trains a few steps and compares each step with one process that trains M.
template <class M>
void ExpectParityOf(const std::vector<PipelineLayer>& layers, const ProcessGroup& group,
                    const Setting& setting, bool ragged) {
  const std::string what = ToText(setting) + (ragged ? ", ragged" : "");
  at::manual_seed(7);
  PipelineEngine engine = InitializePipeline(ConfigOf(setting), {.layers = layers}, group);
  Expect(engine.num_stages() == setting.stages, what + ": as many stages");
  Reference<M> reference(setting, engine.num_replicas(), AllParameters<M>(engine, group));
  for (int64_t step = 0; step < 3; ++step) {
    const double loss = engine.TrainBatch(Source(step, engine.replica(), ragged));
    const StepResult wanted = reference.Step(step, ragged);
    const std::string where = what + ", step " + std::to_string(step);
    ExpectNear(loss, wanted.loss, where + ": loss");
    ExpectNear(engine.core().grad_norm(), wanted.grad_norm, where + ": norm of the gradient");
  }
  const std::map<std::string, at::Tensor> trained = AllParameters<M>(engine, group);
  for (const auto& parameter : reference.engine().model().named_parameters()) {
    Expect(at::allclose(trained.at(parameter.key()), parameter.value(), 1e-5, 1e-6),
           what + ": the trained " + parameter.key());
  }
}

void ExpectParity(const ProcessGroup& group, const Setting& setting, bool ragged) {
  ExpectParityOf<Whole>(Layers(), group, setting, ragged);
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

TEST_P(PipelineEngineTest, TrainsLikeOneProcess) {
  const auto [stages, replicas] = GetParam();
  InRanks(stages * replicas, [&](ProcessGroup& group) {
    for (const Setting& setting : SettingsFor(stages)) {
      ExpectParity(group, setting, /*ragged=*/false);
    }
  });
}

TEST_P(PipelineEngineTest, AcceptsMicroBatchesOfDifferentShapes) {
  const auto [stages, replicas] = GetParam();
  InRanks(stages * replicas, [&](ProcessGroup& group) {
    for (Setting setting : SettingsFor(stages)) {
      if (setting.micro_batches == 2) continue;
      setting.sgd = true;
      ExpectParity(group, setting, /*ragged=*/true);
    }
  });
}

TEST(PipelineEngineZeroTest, EveryZeroStageTrainsLikeOneProcess) {
  InRanks(4, [](ProcessGroup& group) {
    for (const int zero : {1, 2, 3}) {
      ExpectParity(group, {.stages = 2, .micro_batches = 4, .zero = zero}, /*ragged=*/false);
      ExpectParity(group,
                   {.stages = 2,
                    .micro_batches = 3,
                    .schedule = "interleaved",
                    .virtual_stages = 2,
                    .zero = zero,
                    .interval = 1,
                    .sgd = true,
                    .rank_order = "data_pipe"},
                   /*ragged=*/true);
      ExpectParity(group, {.stages = 2, .micro_batches = 4, .schedule = "zb-h1", .zero = zero},
                   /*ragged=*/false);
    }
  });
}

TEST(PipelineEngineRecomputeTest, RecomputingKeepsLossesAndNorms) {
  InRanks(2, [](ProcessGroup& group) {
    for (Setting setting : SettingsFor(2)) {
      if (setting.micro_batches != 4) continue;
      for (setting.interval = 1; setting.interval <= 3; ++setting.interval) {
        ExpectParity(group, setting, /*ragged=*/true);
      }
    }
  });
}

TEST(PipelineEngineRecomputeTest, UpdatesRunningStatisticsOnce) {
  InRanks(2, [](ProcessGroup& group) {
    const auto trained = [&](int interval) {
      at::manual_seed(7);
      PipelineEngine engine = InitializePipeline(
          ConfigOf({.stages = 2, .interval = interval}),
          {.layers = {LayerSpec<Linear>(kWidth, kWidth), LayerSpec<torch::nn::BatchNorm1d>(kWidth),
                      LayerSpec<Linear>(kWidth, kWidth),
                      LayerSpec<torch::nn::BatchNorm1d>(kWidth)}},
          group);
      engine.TrainBatch([] {
        const at::Tensor numbers = at::arange(4 * kWidth, at::kFloat).sin().view({4, kWidth});
        return MicroBatch{{numbers}, {at::arange(4)}};
      });
      return engine;
    };
    PipelineEngine without = trained(0), with = trained(2);
    const auto wanted = without.module().named_buffers(), got = with.module().named_buffers();
    Expect(wanted.size() == 3, "a stage has the three buffers of one layer");
    for (const auto& buffer : wanted) {
      Expect(at::equal(got[buffer.key()], buffer.value()), "as without: " + buffer.key());
    }
  });
}

// ---- Tied weights ----

// Returns layers in which the head shares the embedding's weight, and three layers share another
// weight.
std::vector<PipelineLayer> TiedLayers() {
  return {TiedLayerSpec<torch::nn::Embedding>("words", kWords, kWidth),
          TiedLayerSpec<Linear>("inner", kWidth, kWidth),
          LayerFunction([](const at::Tensor& x) { return at::tanh(x); }),
          LayerSpec<Linear>(kWidth, kWidth),
          TiedLayerSpec<Linear>("inner", kWidth, kWidth),
          LayerFunction([](const at::Tensor& x) { return at::tanh(x); }),
          TiedLayerSpec<Linear>("inner", kWidth, kWidth),
          TiedLayerSpecWith<torch::nn::Embedding>(
              "words",
              [](torch::nn::EmbeddingImpl& words, const at::Tensor& x) {
                return at::linear(x, words.weight);
              },
              kWords, kWidth)};
}

struct TiedWhole : torch::nn::Module {
  TiedWhole()
      : words(register_module("0", torch::nn::Embedding(kWords, kWidth))),
        inner(register_module("1", Linear(kWidth, kWidth))),
        middle(register_module("3", Linear(kWidth, kWidth))) {}
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = at::tanh(inner(middle(at::tanh(inner(words(tokens))))));
    return at::linear(inner(x), words->weight);
  }
  torch::nn::Embedding words;
  Linear inner, middle;
};

TEST(PipelineEngineTiedTest, TrainsTiedWeightsAsOneWeight) {
  for (const auto [stages, replicas] : {Grid{2, 1}, Grid{4, 1}, Grid{2, 2}}) {
    InRanks(stages * replicas, [&](ProcessGroup& group) {
      for (Setting setting : SettingsFor(stages)) {
        if (setting.micro_batches != 4) continue;
        for (setting.zero = 0; setting.zero <= 3; ++setting.zero) {
          setting.sgd = setting.zero % 2 == 1;
          ExpectParityOf<TiedWhole>(TiedLayers(), group, setting, /*ragged=*/false);
        }
      }
    });
  }
}

// ---- Checkpoints ----

TEST(PipelineEngineCheckpointTest, LoadsWithOtherPipelineAndZeroStages) {
  const TempDir folder;
  InRanks(4, [&](ProcessGroup& group) {
    const std::vector<Setting> settings = {
        {.stages = 2, .micro_batches = 2},
        {.stages = 4, .micro_batches = 4, .zero = 1},
        {.stages = 1, .micro_batches = 1, .zero = 3},
        {.stages = 2, .micro_batches = 2, .schedule = "zb-h1", .zero = 2},
        {.stages = 2,
         .micro_batches = 2,
         .schedule = "interleaved",
         .virtual_stages = 2,
         .rank_order = "data_pipe"}};
    // All settings train on the same samples: 4 micro-batches in each step.
    const auto train = [&](PipelineEngine& engine, int64_t step) {
      return engine.TrainBatch([&, micro_batch = int64_t{0}]() mutable {
        const int64_t number = engine.replica() * engine.core().accumulation_steps() + micro_batch;
        ++micro_batch;
        return Data({step, 0, number}, /*ragged=*/false);
      });
    };
    std::vector<double> wanted;
    for (size_t i = 0; i < settings.size(); ++i) {
      at::manual_seed(11 + i);
      PipelineEngine engine =
          InitializePipeline(ConfigOf(settings[i]), {.layers = TiedLayers()}, group);
      if (i == 0) {
        for (int64_t step = 0; step < 3; ++step) train(engine, step);
        engine.SaveCheckpoint(folder.path());
      } else {
        Expect(engine.LoadCheckpoint(folder.path(), "global_step3").has_value(), "it is found");
        Expect(engine.core().global_steps() == 3, "the run goes on where it was");
      }
      for (int64_t step = 3; step < 6; ++step) {
        const double loss = train(engine, step);
        if (i == 0) wanted.push_back(loss);
        ExpectNear(loss, wanted[static_cast<size_t>(step - 3)],
                   ToText(settings[i]) + ", step " + std::to_string(step));
      }
      engine.SaveCheckpoint(folder.path(), "other" + std::to_string(i));
    }
  });
}

// ---- Memory ----

// The backward pass of `layer` reads neither its input nor its output, so the output can be freed
// once it is sent.
TEST(PipelineEngineMemoryTest, FreesSentOutputsThatBackwardDoesNotRead) {
  InRanks(2, [](ProcessGroup& group) {
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> outputs;
    size_t alive = 0;
    auto layer = LayerFunction([&](const at::Tensor& x) {
      alive = static_cast<size_t>(
          std::ranges::count_if(outputs, [](const auto& output) { return !output.expired(); }));
      const at::Tensor y = x * 2;
      outputs.emplace_back(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(y.storage().unsafeGetStorageImpl()));
      return y;
    });
    const Setting setting{.stages = 2, .micro_batches = 8, .schedule = "gpipe"};
    PipelineEngine engine = InitializePipeline(
        ConfigOf(setting),
        {.layers = {LayerSpec<torch::nn::Embedding>(kWords, kWidth), std::move(layer),
                    LayerSpec<Linear>(kWidth, kWidth), LayerSpec<Linear>(kWidth, kClasses)}},
        group);
    engine.TrainBatch(Source(0, 0, /*ragged=*/false));
    if (engine.is_first_stage()) {
      Expect(outputs.size() == 8, "there were as many outputs");
      Expect(alive == 0, "none of them is held, where all backward passes are still to come");
    }
  });
}

// A stage must hold the tensors that its backward passes read only for the micro-batches that the
// schedule keeps in progress. A tanh layer keeps its output until the backward pass. An output that
// a linear layer reads is kept until the gradient of the layer's weight is computed.
TEST(PipelineEngineMemoryTest, HoldsAsManyMicroBatchesAsScheduled) {
  InRanks(4, [](ProcessGroup& group) {
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> outputs;
    int64_t peak = 0;
    const auto tanh = [&](const at::Tensor& x) {
      const at::Tensor y = at::tanh(x);
      outputs.emplace_back(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(y.storage().unsafeGetStorageImpl()));
      peak = std::max<int64_t>(peak, std::ranges::count_if(outputs, [](const auto& output) {
                                 return !output.expired();
                               }));
      return y;
    };
    std::vector<PipelineLayer> layers = {LayerSpec<torch::nn::Embedding>(kWords, kWidth)};
    for (int i = 0; i < 7; ++i) {
      layers.push_back(LayerFunction(tanh));
      layers.push_back(LayerSpec<Linear>(kWidth, i < 6 ? kWidth : kClasses));
    }
    // Makes 8 chunks of two layers, each of which contains a tanh.
    layers.push_back(LayerFunction(tanh));
    for (const Setting& setting : SettingsFor(4)) {
      PipelineEngine engine = InitializePipeline(ConfigOf(setting), {.layers = layers}, group);
      outputs.clear();
      peak = 0;
      for (int64_t step = 0; step < 2; ++step) engine.TrainBatch(Source(step, 0, false));
      const PipelineSchedule schedule =
          MakePipelineSchedule(TypeOf(setting), setting.stages,
                               static_cast<int>(setting.micro_batches), setting.virtual_stages);
      const auto stage = static_cast<size_t>(group.rank());
      const int64_t each = 2 / setting.virtual_stages;
      const int64_t least = each * PeakLiveMicroBatches(schedule)[stage];
      const int64_t most = each * PeakHeldMicroBatches(schedule)[stage];
      Expect(peak >= least && peak <= most, c10::str(ToText(setting), ", stage ", stage, ": ", peak,
                                                     " outputs alive, not ", least, " to ", most));
    }
  });
}

// ---- Messages ----

// Runs every schedule on a network on which a send ends only when it is matched, and all messages
// between two ranks keep one order. The shapes change with every message, so every message has a
// rest.
void ExpectRunsStrictly(int stages, int replicas) {
  InRanks(stages * replicas, [&](ProcessGroup& group) {
    const auto world = StrictBackend::Install(group);
    for (const Setting& setting : SettingsFor(stages)) {
      if (setting.micro_batches == 2) continue;
      PipelineEngine engine = InitializePipeline(ConfigOf(setting), {.layers = Layers()}, group);
      const auto replica_group = replicas > 1 ? StrictBackend::Install(engine.replicas()) : nullptr;
      for (int64_t step = 0; step < 3; ++step) {
        engine.TrainBatch(Source(step, engine.replica(), /*ragged=*/step > 0));
      }
      engine.EvalBatch(Source(0, engine.replica(), /*ragged=*/true), 3);
      engine.Infer(Data({}, /*ragged=*/false).inputs);
      if (replica_group) replica_group->Compare(engine.replicas());
    }
    world->Compare(group);
  });
}

TEST(PipelineEngineNetworkTest, RunsEveryScheduleWithMessagesInOneOrder) {
  ExpectRunsStrictly(2, 1);
  ExpectRunsStrictly(3, 1);
  ExpectRunsStrictly(2, 2);
}

// After the first micro-batch of the first batch, activations with an unchanged layout need only
// one message.
TEST(PipelineEngineNetworkTest, SendsShapesOnlyIfTheyChange) {
  InRanks(2, [](ProcessGroup& group) {
    const auto network = StrictBackend::Install(group);
    const Setting setting{.stages = 2, .micro_batches = 4};
    PipelineEngine engine = InitializePipeline(ConfigOf(setting), {.layers = Layers()}, group);
    const auto messages = [&] {
      return std::ranges::count_if(network->operations(), [](const auto& operation) {
        return operation.name == "send" || operation.name == "recv";
      });
    };
    const auto before = messages();
    engine.TrainBatch(Source(0, 0, /*ragged=*/false));
    const auto first = messages();
    engine.TrainBatch(Source(1, 0, /*ragged=*/false));
    Expect(messages() - first == 2 * 4, "a second batch has activations and gradients only");
    Expect(first - before > 2 * 4, "the first one says what they are");
  });
}

// ---- Random numbers ----

std::vector<PipelineLayer> LayersWithDropout() {
  return {LayerSpec<torch::nn::Embedding>(kWords, kWidth),
          LayerSpec<torch::nn::Dropout>(0.5),
          LayerSpec<Linear>(kWidth, kWidth),
          LayerSpec<torch::nn::Dropout>(0.5),
          LayerSpec<Linear>(kWidth, kWidth),
          LayerSpec<torch::nn::Dropout>(0.5),
          LayerSpec<Linear>(kWidth, kClasses),
          LayerFunction([](const at::Tensor& x) { return x * 2; })};
}

std::vector<double> LossesWithDropout(const Setting& setting, uint64_t seed) {
  const TempDir folder;
  InRanks(setting.stages, [&](ProcessGroup& group) {
    at::manual_seed(seed);
    const auto loss = [](const Tensors& outputs, const Tensors& targets) {
      return CrossEntropy(at::dropout(outputs[0], 0.5, true), targets[0]);
    };
    PipelineEngine engine =
        InitializePipeline(ConfigOf(setting), {.layers = LayersWithDropout(), .loss = loss}, group);
    std::ofstream file(folder / ("rank" + std::to_string(group.rank())));
    file.precision(17);
    for (int64_t step = 0; step < 3; ++step) {
      at::rand({setting.stages});  // other random draws have no effect
      file << engine.TrainBatch(Source(step, 0, /*ragged=*/false)) << "\n";
    }
  });
  std::ifstream file(folder / "rank0");
  std::vector<double> losses;
  for (double loss = 0; file >> loss;) losses.push_back(loss);
  EXPECT_EQ(losses.size(), 3u);
  return losses;
}

TEST(PipelineEngineRandomTest, DropoutIsTheSameForEveryCutAndRecomputed) {
  Setting setting{.micro_batches = 4};
  const std::vector<double> wanted = LossesWithDropout(setting, 5);
  EXPECT_NE(wanted, LossesWithDropout(setting, 6));
  const auto expect_same = [&] {
    const std::vector<double> got = LossesWithDropout(setting, 5);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6) << ToText(setting);
  };
  for (setting.interval = 0; setting.interval <= 2; ++setting.interval) {
    for (setting.stages = 1; setting.stages <= 4; ++setting.stages) expect_same();
  }
  setting = {.stages = 2,
             .micro_batches = 4,
             .schedule = "interleaved",
             .virtual_stages = 3,
             .interval = 1};
  expect_same();
  setting = {.stages = 4, .micro_batches = 4, .schedule = "zb-h1", .interval = 2};
  expect_same();
}

// ---- Without gradients ----

TEST_P(PipelineEngineTest, EvaluatesAndInfersLikeOneProcess) {
  const auto [stages, replicas] = GetParam();
  InRanks(stages * replicas, [&](ProcessGroup& group) {
    const Setting setting{
        .stages = stages, .micro_batches = 2, .schedule = "interleaved", .virtual_stages = 2};
    PipelineEngine engine = InitializePipeline(ConfigOf(setting), {.layers = Layers()}, group);
    Reference<Whole> reference(setting, replicas, AllParameters<Whole>(engine, group));
    constexpr int64_t kBatches = 5;
    double sum = 0;
    const at::NoGradGuard no_grad;
    Whole& whole = const_cast<Whole&>(reference.engine().model());
    for (int64_t m = 0; m < kBatches; ++m) {
      for (int64_t replica = 0; replica < replicas; ++replica) {
        const MicroBatch data = Data({9, replica, m}, /*ragged=*/true);
        sum += CrossEntropy(whole.forward(data.inputs[0]), data.targets[0]).item<double>();
      }
    }
    for (const bool trains : {true, false}) {
      engine.SetTrain(trains);
      ExpectNear(engine.EvalBatch(Source(9, engine.replica(), /*ragged=*/true), kBatches),
                 sum / static_cast<double>(kBatches * replicas), "the mean loss");
      Expect(engine.module().is_training() == trains, "the mode is what it was");
    }
    for (int64_t m = 0; m < 3; ++m) {
      const MicroBatch data = Data({9, engine.replica(), m}, /*ragged=*/true);
      const Tensors outputs = engine.Infer(engine.is_first_stage() ? data.inputs : Tensors());
      Expect(outputs.size() == 1, "the model has one output");
      Expect(at::allclose(outputs[0], whole.forward(data.inputs[0]), 1e-5, 1e-6), "the output");
    }
  });
}

// A layer shared by two stages. Its buffer differs between replicas, because replicas get different
// samples.
struct Counting : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    if (is_training()) seen.add_(x.detach().mean());
    return x * scale + seen;
  }
  at::Tensor scale = register_parameter("scale", at::ones({1}));
  at::Tensor seen = register_buffer("seen", at::zeros({1}));
};

TEST(PipelineEngineBuffersTest, EvaluatesWithBuffersThatCheckpointHolds) {
  const TempDir dir;
  InRanks(4, [&](ProcessGroup& group) {
    const std::vector<PipelineLayer> layers = {
        LayerSpec<torch::nn::Embedding>(kWords, kWidth), TiedLayerSpec<Counting>("counting"),
        TiedLayerSpec<Counting>("counting"), LayerSpec<Linear>(kWidth, kClasses)};
    std::string config = ConfigOf({.stages = 2, .micro_batches = 2});
    config.insert(1, R"("broadcast_buffers": false, )");
    PipelineEngine engine = InitializePipeline(config, {.layers = layers}, group);
    const auto source = [&] { return Source(9, engine.replica(), /*ragged=*/false); };
    for (int64_t step = 0; step < 2; ++step) {
      engine.TrainBatch(Source(step, engine.replica(), /*ragged=*/false));
      const at::Tensor own = engine.module().buffers().at(0).clone();
      const double evaluated = engine.EvalBatch(source(), 3);
      Expect(at::equal(engine.module().buffers().at(0), own), "its own come back");
      const std::string tag = "step" + std::to_string(step);
      engine.SaveCheckpoint(dir.path(), tag);
      PipelineEngine loaded = InitializePipeline(config, {.layers = layers}, group);
      loaded.LoadCheckpoint(dir.path(), tag);
      ExpectNear(evaluated, loaded.EvalBatch(source(), 3), "of the checkpoint");
      Expect(group.rank() == 0 || !at::equal(loaded.module().buffers().at(0), own), "they differ");
    }
  });
}

TEST(PipelineEngineSourceTest, CallsSourceOnFirstAndLastStageInOrder) {
  InRanks(3, [](ProcessGroup& group) {
    const Setting setting{.stages = 3, .micro_batches = 4};
    PipelineEngine engine = InitializePipeline(ConfigOf(setting), {.layers = Layers()}, group);
    int64_t calls = 0;
    const MicroBatchSource source = Source(0, 0, /*ragged=*/false);
    engine.TrainBatch([&] {
      ++calls;
      MicroBatch batch = source();
      // The first stage needs only inputs, and the last stage needs only targets.
      if (!engine.is_first_stage()) batch.inputs.clear();
      if (!engine.is_last_stage()) batch.targets.clear();
      return batch;
    });
    Expect(calls == (engine.stage() == 1 ? 0 : 4), "as many micro-batches");
  });
}

TEST(PipelineEngineProfileTest, CutsAllRanksByTheSameTimes) {
  InRanks(3, [](ProcessGroup& group) {
    at::manual_seed(3);
    PipelineEngine engine = InitializePipeline(
        ConfigOf({.stages = 3, .micro_batches = 2}),
        {.layers = Layers(), .partition = "profile", .sample = Data({}, /*ragged=*/false).inputs},
        group);
    const double loss = engine.TrainBatch(Source(0, 0, /*ragged=*/false));
    Expect(std::isfinite(loss), "it trains");
  });
}

// ---- Mistakes and losses ----

// Returns the error that each rank threw, or "". With `all`, every rank must throw and waits until
// all have thrown, so that no rank mistakes another's exit for a lost rank.
std::vector<std::string> ErrorsOf(int ranks, bool all,
                                  const std::function<void(ProcessGroup& group)>& body) {
  const TempDir folder;
  const auto name = [&](int rank) { return folder / ("rank" + std::to_string(rank)); };
  const auto have_all_failed = [&] {
    for (int rank = 0; rank < ranks; ++rank) {
      if (!std::filesystem::exists(name(rank))) return false;
    }
    return true;
  };
  try {
    Spawn(ranks, [&](int rank) {
      // SIGTERM is ignored so that, if one rank is killed, the other ranks can still report their
      // errors.
      std::signal(SIGTERM, SIG_IGN);
      ProcessGroup group = InitProcessGroup();
      group.Barrier();
      try {
        body(group);
      } catch (const std::exception& error) {
        std::ofstream(name(rank)) << error.what();
        for (int i = 0; all && i < 1000 && !have_all_failed(); ++i) usleep(10'000);
        _exit(0);
      }
      group.Finish();
    });
  } catch (const TrainError& error) {
    EXPECT_THAT(error.what(), HasSubstr("SIGKILL"));
  }
  std::vector<std::string> errors;
  for (int rank = 0; rank < ranks; ++rank) {
    std::ifstream file(name(rank));
    errors.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return errors;
}

MATCHER(IsPeerLoss, "") { return ClassifyCommFailure(arg) == CommFailure::kPeerLost; }

// Returns a module of three stages with one layer each; stage 1 has `layer`.
PipelineModule ThreeStages(PipelineLayer layer) {
  return {.layers = {LayerSpec<Linear>(kWidth, kWidth), std::move(layer),
                     LayerSpec<Linear>(kWidth, kClasses)},
          .num_stages = 3,
          .partition = "uniform"};
}

constexpr char kConfig[] = R"({"train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})";

MicroBatch Vectors() { return {{at::ones({2, kWidth})}, {at::zeros({2}, at::kLong)}}; }

struct FrozenLinear : torch::nn::Module {
  FrozenLinear() : linear(register_module("linear", Linear(kWidth, kWidth))) {
    linear->weight.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  Linear linear;
};

TEST(PipelineEngineGroupsTest, AcceptsFrozenParametersOfAnyStage) {
  const auto make = [](const std::string& pattern, ProcessGroup& group) {
    std::string config = kConfig;
    config.insert(config.find(R"("params")"),
                  R"("param_groups": [{"names": [")" + pattern + R"("], "lr": 9}], )");
    return InitializePipeline(config, ThreeStages(LayerSpec<FrozenLinear>()), group);
  };
  EXPECT_THAT(ErrorsOf(3, /*all=*/false,
                       [&](ProcessGroup& group) {
                         PipelineEngine engine = make("1.linear.weight", group);
                         (void)engine.TrainBatch([] { return Vectors(); });
                         Expect(engine.core().GetLearningRates() == std::vector<double>{9, 0.1},
                                "the rates are those of the configuration");
                       }),
              Each(""));
  EXPECT_THAT(
      ErrorsOf(3, /*all=*/true, [&](ProcessGroup& group) { (void)make("1.linear.wieght", group); }),
      Each(HasSubstr("matches no parameter that is not in an earlier group")));
}

TEST(PipelineEngineMistakeTest, NamesLayerThatReturnsNothing) {
  const std::vector<std::string> errors = ErrorsOf(3, /*all=*/false, [](ProcessGroup& group) {
    int calls = 0;
    PipelineEngine engine =
        InitializePipeline(kConfig, ThreeStages(LayerFunction([&](const at::Tensor& x) {
                             return ++calls < 3 ? x : at::Tensor();
                           })),
                           group);
    for (;;) engine.TrainBatch(Vectors);
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("stage 1"), HasSubstr("layer 1 (function)"),
                               HasSubstr("undefined tensor")));
  EXPECT_THAT(errors[0], AllOf(HasSubstr("stage 1 (rank 1: layer 1"), IsPeerLoss()));
  EXPECT_THAT(errors[2], AllOf(HasSubstr("stage 1 (rank 1: layer 1"), IsPeerLoss()));
}

TEST(PipelineEngineMistakeTest, NamesLayerThatThrows) {
  const std::vector<std::string> errors = ErrorsOf(3, /*all=*/false, [](ProcessGroup& group) {
    PipelineEngine engine =
        InitializePipeline(kConfig, ThreeStages(LayerSpec<Linear>(kWidth + 1, kWidth)), group);
    engine.TrainBatch(Vectors);
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("stage 1"), HasSubstr("layer 1 (torch::nn::LinearImpl)"),
                               HasSubstr("shapes cannot be multiplied")));
}

TEST(PipelineEngineMistakeTest, NamesLayerWithSparseOutput) {
  const std::vector<std::string> errors = ErrorsOf(3, /*all=*/false, [](ProcessGroup& group) {
    PipelineEngine engine = InitializePipeline(
        kConfig,
        ThreeStages(LayerFunction([](const at::Tensor& x) { return x.detach().to_sparse(); })),
        group);
    engine.TrainBatch(Vectors);
  });
  EXPECT_THAT(errors[1],
              AllOf(HasSubstr("stage 1, layer 1 (function): its output is Sparse on cpu")));
}

TEST(PipelineEngineMistakeTest, RejectsMoreStagesThanLayers) {
  const std::vector<std::string> errors = ErrorsOf(2, /*all=*/true, [](ProcessGroup& group) {
    InitializePipeline(kConfig, {.layers = {LayerSpec<Linear>(2, 2)}, .num_stages = 2}, group);
  });
  EXPECT_THAT(errors, Each(HasSubstr("1 layer")));
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(PipelineEngineMistakeTest, RejectsProgramsOwnOptimizer) {
  const std::vector<std::string> errors = ErrorsOf(2, /*all=*/true, [](ProcessGroup& group) {
    InitializePipeline(kConfig, {.layers = Layers(), .num_stages = 2}, group,
                       {.make_optimizer = [](const std::vector<NamedTensor>&) { return nullptr; }});
  });
  EXPECT_THAT(errors, Each(HasSubstr("make_optimizer is not supported in a pipeline")));
}

TEST(PipelineEngineMistakeTest, RejectsStagesThatDoNotDivideRanks) {
  const std::vector<std::string> errors = ErrorsOf(3, /*all=*/true, [](ProcessGroup& group) {
    InitializePipeline(kConfig, {.layers = Layers(), .num_stages = 2}, group);
  });
  EXPECT_THAT(errors, Each(HasSubstr("pipeline.stages is 2, which does not divide 3 ranks")));
}

TEST(PipelineEngineMistakeTest, RejectsDifferentNumbersOfMicroBatches) {
  std::vector<std::string> errors = ErrorsOf(2, /*all=*/true, [](ProcessGroup& group) {
    const Setting setting{.stages = 2, .micro_batches = group.rank() == 0 ? 4 : 8};
    InitializePipeline(ConfigOf(setting), {.layers = Layers()}, group);
  });
  EXPECT_THAT(errors, Each(HasSubstr("gradient_accumulation_steps (rank 0: 4; rank 1: 8)")));

  errors = ErrorsOf(2, /*all=*/false, [](ProcessGroup& group) {
    PipelineEngine engine =
        InitializePipeline(ConfigOf({.stages = 2}), {.layers = Layers()}, group);
    engine.EvalBatch(Source(0, 0, /*ragged=*/false), group.rank() == 0 ? 2 : 3);
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("stage 0 (rank 0: layers 0 to 3) has a batch of 2"),
                               HasSubstr("stage 1 (rank 1: layers 4 to 7) has a batch of 3")));

  errors = ErrorsOf(2, /*all=*/true,
                    [](ProcessGroup& group) {  // two replicas, which have exchanged nothing before
                      PipelineEngine engine =
                          InitializePipeline(ConfigOf({.stages = 1}), {.layers = Layers()}, group);
                      engine.EvalBatch(Source(0, 0, /*ragged=*/false), group.rank() == 0 ? 2 : 3);
                    });
  EXPECT_THAT(errors, Each(HasSubstr("rank 0: 2 micro-batches; rank 1: 3 micro-batches")));
}

TEST(PipelineEngineMistakeTest, NamesSourceThatEndsEarly) {
  for (const bool throws : {true, false}) {
    const std::vector<std::string> errors = ErrorsOf(3, /*all=*/false, [&](ProcessGroup& group) {
      PipelineEngine engine =
          InitializePipeline(kConfig, ThreeStages(LayerSpec<Linear>(kWidth, kWidth)), group);
      int calls = 0;
      engine.TrainBatch([&] {
        if (++calls < 3) return Vectors();
        if (throws) throw std::runtime_error("the file is at its end");
        return MicroBatch();
      });
    });
    EXPECT_THAT(errors[0], AllOf(HasSubstr("stage 0, the source"), HasSubstr("micro-batch 3 of 4"),
                                 HasSubstr(throws ? "the file is at its end" : "no inputs")));
    EXPECT_THAT(errors[1], IsPeerLoss());
  }
}

TEST(PipelineEngineMistakeTest, DefaultLossRequiresTarget) {
  const std::vector<std::string> errors = ErrorsOf(3, /*all=*/false, [&](ProcessGroup& group) {
    PipelineEngine engine =
        InitializePipeline(kConfig, ThreeStages(LayerSpec<Linear>(kWidth, kWidth)), group);
    engine.TrainBatch([] { return MicroBatch{Vectors().inputs, {}}; });
  });
  EXPECT_THAT(errors[2], AllOf(HasSubstr("stage 2, the loss of micro-batch 1 of 4"),
                               HasSubstr("returned no targets")));
}

TEST(PipelineEngineMistakeTest, RejectsTrainingInEvaluationMode) {
  const std::vector<std::string> errors = ErrorsOf(1, /*all=*/false, [&](ProcessGroup& group) {
    PipelineEngine engine = InitializePipeline(ConfigOf({}), {.layers = Layers()}, group);
    engine.SetTrain(false);
    engine.TrainBatch(Source(0, 0, /*ragged=*/false));
  });
  EXPECT_THAT(errors[0], HasSubstr("TrainBatch was called while the model is in evaluation mode"));
}

TEST(PipelineEngineLossTest, NeighboursNameKilledStage) {
  const std::vector<std::string> errors = ErrorsOf(3, /*all=*/false, [](ProcessGroup& group) {
    int calls = 0;
    PipelineEngine engine =
        InitializePipeline(kConfig, ThreeStages(LayerFunction([&](const at::Tensor& x) {
                             if (++calls == 7) std::raise(SIGKILL);
                             return x * 1;
                           })),
                           group);
    for (;;) engine.TrainBatch(Vectors);
  });
  for (const int neighbour : {0, 2}) {
    EXPECT_THAT(errors[neighbour], AllOf(HasSubstr("of micro-batch "),
                                         HasSubstr("stage 1 (rank 1: layer 1"), IsPeerLoss()));
  }
}

}  // namespace
}  // namespace dslaunch::pipeline_engine_test
