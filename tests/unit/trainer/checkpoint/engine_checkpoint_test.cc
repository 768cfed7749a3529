// Tests SaveCheckpoint and LoadCheckpoint as programs use them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "dslaunch/engine.h"
#include "dslaunch/error.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "trainer/checkpoint/folder_lease.h"
#include "trainer/foreign/write_universal.h"

namespace dslaunch::engine_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kSamples = 12;  // samples per step, over all ranks

struct Net : torch::nn::Module {
  explicit Net(int64_t width = 6) {
    first = register_module("first", torch::nn::Linear(4, width));
    second = register_module("second", torch::nn::Linear(width, 3));
    mean = register_buffer("mean", at::zeros({4}));
  }
  at::Tensor forward(const at::Tensor& x) {
    mean.copy_(0.9 * mean + 0.1 * x.mean(0));
    return second(at::tanh(first(x)));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  at::Tensor mean;
};

std::string Config(int ranks, const std::string& more = "") {
  return R"({"train_batch_size": )" + std::to_string(kSamples) +
         R"(, "train_micro_batch_size_per_gpu": )" + std::to_string(kSamples / ranks) +
         R"(, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
             "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01,
                           "warmup_num_steps": 20, "warmup_type": "linear"}})" +
         more + "}";
}

Engine<Net> MakeEngine(const ProcessGroup& group, const std::string& more = "") {
  auto net = std::make_shared<Net>();
  const at::NoGradGuard no_grad;
  for (const auto& item : net->named_parameters()) {
    item.value().copy_(at::arange(item.value().numel()).view(item.value().sizes()).sin() * 0.3);
  }
  const at::AutoGradMode with_grad(true);
  auto engine = Initialize(Config(group.world_size(), more), net, group);
  engine.SetTrain();
  return engine;
}

// Trains `steps` steps and returns the global loss of each step. The data of a step depend only on
// the step's number.
std::vector<double> Train(Engine<Net>& engine, const ProcessGroup& group, int steps) {
  const int64_t share = kSamples / group.world_size();
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    const auto step = static_cast<double>(engine.global_steps());
    const at::Tensor all =
        (at::arange(kSamples * 4, at::kFloat) * 0.37 + step).sin().view({kSamples, 4});
    const at::Tensor targets = at::arange(kSamples).remainder(3);
    const int64_t begin = group.rank() * share;
    const at::Tensor loss = engine.Loss(engine.Forward(all.slice(0, begin, begin + share)),
                                        targets.slice(0, begin, begin + share));
    engine.Backward(loss);
    engine.Step();
    std::vector<double> sum = {loss.item<double>() / group.world_size()};
    group.AllReduceSum(sum);
    losses.push_back(sum[0]);
  }
  return losses;
}

void InRanks(int world_size, const std::function<void(const ProcessGroup&)>& rank) {
  for (const std::exception_ptr& error : RunRanks(world_size, rank)) EXPECT_EQ(TextOf(error), "");
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& wanted,
                const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], wanted[i], 1e-6 * wanted[i]) << what << ", step " << i;
  }
}

TEST(EngineCheckpointTest, AnyNumberOfRanksContinuesWithSameLosses) {
  const TempDir folder;
  std::vector<double> rest;
  InRanks(2, [&](const ProcessGroup& group) {
    auto engine = MakeEngine(group);
    Train(engine, group, 4);
    engine.SaveCheckpoint(folder.path(), "", {{"epoch", "3"}, {"note", "\u00fc"}});
    const std::vector<double> losses = Train(engine, group, 5);
    if (group.rank() == 0) rest = losses;
  });
  EXPECT_TRUE(fs::exists(folder / "global_step4/generator-00002-of-00002.safetensors"));
  for (const int ranks : {1, 2, 3, 4}) {
    InRanks(ranks, [&](const ProcessGroup& group) {
      auto engine = MakeEngine(group);
      Train(engine, group, 1);  // makes the state differ from a new engine's state
      const auto loaded = engine.LoadCheckpoint(folder.path());
      ASSERT_TRUE(loaded);
      EXPECT_EQ(loaded->folder, folder / "global_step4");
      EXPECT_EQ(loaded->client_state, (ClientState{{"epoch", "3"}, {"note", "\u00fc"}}));
      EXPECT_EQ(loaded->micro_steps, 4);
      EXPECT_EQ(engine.global_steps(), 4);
      ExpectNear(Train(engine, group, 5), rest, std::to_string(ranks) + " ranks");
    });
  }
}

TEST(EngineCheckpointTest, LoadsDeepSpeedsUniversalCheckpoint) {
  const TempDir folder;
  std::vector<double> rest;
  InRanks(2, [&](const ProcessGroup& group) {
    auto engine = MakeEngine(group);
    Train(engine, group, 4);
    engine.SaveCheckpoint(folder.path());
    const std::vector<double> losses = Train(engine, group, 5);
    if (group.rank() == 0) rest = losses;
  });
  WriteUniversal(ReadCheckpoint(folder / "global_step4"), folder / "universal",
                 [](uint64_t, uint64_t) {});
  for (const int ranks : {1, 3}) {
    InRanks(ranks, [&](const ProcessGroup& group) {
      auto engine = MakeEngine(group, R"(, "zero_optimization": {"stage": 2})");
      const auto loaded = engine.LoadCheckpoint(folder / "universal");
      ASSERT_TRUE(loaded);
      EXPECT_THAT(loaded->reason, HasSubstr("loading " + (folder / "universal")));
      EXPECT_EQ(engine.global_steps(), 4);
      EXPECT_EQ(loaded->micro_steps, 4);
      ExpectNear(Train(engine, group, 5), rest, std::to_string(ranks) + " ranks");
    });
  }
}

TEST(EngineCheckpointTest, EveryZeroStageAndNumberOfRanksLoadsEveryOther) {
  struct Layout {
    int ranks, stage;
    std::string zero() const {
      return R"(, "zero_optimization": {"stage": )" + std::to_string(stage) +
             R"(, "stage3_param_persistence_threshold": 4})";
    }
    std::string name() const {
      return std::to_string(ranks) + "_ranks_stage_" + std::to_string(stage);
    }
  };
  std::vector<Layout> layouts;
  for (const int ranks : {1, 2, 4}) {
    for (const int stage : {0, 1, 2, 3}) layouts.push_back({ranks, stage});
  }
  const TempDir folder;
  std::vector<double> rest;
  for (const Layout& from : layouts) {
    InRanks(from.ranks, [&](const ProcessGroup& group) {
      auto engine = MakeEngine(group, from.zero());
      Train(engine, group, 3);
      engine.SaveCheckpoint(folder / from.name());
      if (from.ranks != 1 || from.stage != 0) return;
      rest = Train(engine, group, 5);
    });
  }
  for (const Layout& to : layouts) {
    InRanks(to.ranks, [&](const ProcessGroup& group) {
      auto engine = MakeEngine(group, to.zero());
      for (const Layout& from : layouts) {
        ASSERT_TRUE(engine.LoadCheckpoint(folder / from.name()));
        ExpectNear(Train(engine, group, 5), rest, from.name() + " on " + to.name());
      }
    });
  }
}

TEST(EngineCheckpointTest, LoadsByTagOrLatestAndRefusesUnknownTags) {
  const TempDir folder;
  InRanks(2, [&](const ProcessGroup& group) {
    auto engine = MakeEngine(group);
    EXPECT_FALSE(engine.LoadCheckpoint(folder / "nothing"));
    EXPECT_FALSE(engine.LoadCheckpoint(folder.path()));
    engine.SaveCheckpoint(folder / "new/folder", "best");
    Train(engine, group, 2);
    engine.SaveCheckpoint(folder / "new/folder", "last");
    engine.LoadCheckpoint(folder / "new/folder", "best");
    EXPECT_EQ(engine.global_steps(), 0);
    engine.LoadCheckpoint(folder / "new/folder");
    EXPECT_EQ(engine.global_steps(), 2);
    group.Barrier();
    if (group.rank() == 0) {
      EXPECT_TRUE(fs::exists(folder / "new/folder/best"));
      fs::resize_file(folder / "new/folder/last/model.safetensors", 20);
    }
    group.Barrier();
    const auto older = engine.LoadCheckpoint(folder / "new/folder");
    ASSERT_TRUE(older);
    EXPECT_THAT(older->reason, AllOf(HasSubstr("folder/best"), HasSubstr("skipped last: ")));
  });
  for (const std::string tag : {"worst", "last"}) {
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
           MakeEngine(group).LoadCheckpoint(folder / "new/folder", tag);
         })) {
      EXPECT_THAT(TextOf(error), HasSubstr("no complete checkpoint " + tag));
    }
  }
  for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
         MakeEngine(group).SaveCheckpoint(folder.path(), "../up");
       })) {
    EXPECT_THAT(TextOf(error), HasSubstr("the tag \"../up\""));
  }
}

TEST(EngineCheckpointTest, IgnoresReportsOrRefusesDifferentTags) {
  for (const std::string validation : {"Ignore", "WARN", "fail"}) {
    const TempDir folder;
    testing::internal::CaptureStderr();
    const auto errors = RunRanks(2, [&](const ProcessGroup& group) {
      auto engine =
          MakeEngine(group, R"(, "checkpoint": {"tag_validation": ")" + validation + "\"}");
      engine.SaveCheckpoint(folder.path(), "of_rank_" + std::to_string(group.rank()));
    });
    const std::string told = testing::internal::GetCapturedStderr();
    using Text = testing::Matcher<std::string>;
    for (const std::exception_ptr& error : errors) {
      EXPECT_THAT(TextOf(error),
                  validation == "fail" ? Text(HasSubstr("rank 1: of_rank_1")) : Text(""));
    }
    EXPECT_EQ(fs::exists(folder / "of_rank_0"), validation != "fail");
    EXPECT_FALSE(fs::exists(folder / "of_rank_1"));
    EXPECT_THAT(told, validation == "WARN" ? Text(HasSubstr("rank 0: of_rank_0; rank 1: of_rank_1"))
                                           : Text(testing::Not(HasSubstr("of_rank"))));
  }
}

TEST(EngineCheckpointTest, LoadsRequestedPartsOfState) {
  const TempDir folder;
  InRanks(2, [&](const ProcessGroup& group) {
    auto engine = MakeEngine(group);
    Train(engine, group, 6);
    engine.SaveCheckpoint(folder.path());
    const at::Tensor weight = engine.model().first->weight.detach().clone();
    const auto state_of = [](const Engine<Net>& any) {
      return any.core().OptimizerState()[0].tensor.abs().sum().item<double>();
    };
    const auto load = [&](const LoadCheckpointOptions& options, auto check) {
      auto other = MakeEngine(group);
      Train(other, group, 1);
      EXPECT_TRUE(other.LoadCheckpoint(folder.path(), "", options));
      EXPECT_TRUE(at::equal(other.model().first->weight, weight));
      check(other);
      Train(other, group, 1);
    };
    const double fresh = [&] {
      auto other = MakeEngine(group);
      Train(other, group, 1);
      return state_of(other);
    }();
    load({.load_module_only = true}, [&](Engine<Net>& other) {
      EXPECT_EQ(other.global_steps(), 1);
      EXPECT_EQ(state_of(other), fresh);
    });
    load({.load_optimizer_states = false}, [&](Engine<Net>& other) {
      EXPECT_EQ(other.global_steps(), 6);
      EXPECT_EQ(other.skipped_steps(), 0);
      EXPECT_EQ(other.lr(), engine.lr());
    });
    load({.load_lr_scheduler_states = false}, [&](Engine<Net>& other) {
      EXPECT_EQ(state_of(other), state_of(engine));
      EXPECT_LT(other.lr(), engine.lr());
    });
  });
}

TEST(EngineCheckpointTest, RestoresLearningRatesSetByProgram) {
  const TempDir set, unset;
  testing::internal::CaptureStdout();
  InRanks(2, [&](const ProcessGroup& group) {
    const auto make = [&](const std::string& more) {
      return Initialize(
          R"({"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1},
                            "param_groups": [{"max_dims": 1, "weight_decay": 0.5}]})" +
              more + "}",
          std::make_shared<Net>(), group);
    };
    auto engine = make("");
    engine.SaveCheckpoint(unset.path());
    engine.core().SetLearningRates({0.25, 1.0 / 3});
    engine.SaveCheckpoint(set.path());

    auto other = make("");
    ASSERT_TRUE(other.LoadCheckpoint(set.path(), "", {.load_optimizer_states = false}));
    EXPECT_THAT(other.GetLearningRates(), testing::ElementsAre(0.1, 0.1));
    ASSERT_TRUE(other.LoadCheckpoint(set.path()));
    EXPECT_THAT(other.GetLearningRates(), testing::ElementsAre(0.25, 1.0 / 3));
    other.SetLearningRate(0.5);
    ASSERT_TRUE(other.LoadCheckpoint(unset.path()));
    EXPECT_THAT(other.GetLearningRates(), testing::ElementsAre(0.5, 0.5)) << "as they were";

    auto scheduled = make(R"(, "scheduler": {"type": "StepLR", "params": {"step_size": 1}})");
    ASSERT_TRUE(scheduled.LoadCheckpoint(set.path()));
    EXPECT_THAT(scheduled.GetLearningRates(), testing::ElementsAre(0.1, 0.1));
  });
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("the program had set 2 learning rates before the checkpoint"),
                    HasSubstr("the scheduler StepLR sets them now")));
}

TEST(EngineCheckpointTest, RestoresGeneratorForSameNumberOfRanks) {
  const TempDir folder;
  InRanks(1, [&](const ProcessGroup& group) {
    auto engine = MakeEngine(group);
    at::manual_seed(3);
    at::rand({5});
    engine.SaveCheckpoint(folder.path());
    const at::Tensor next = at::rand({5});
    at::manual_seed(4);
    engine.LoadCheckpoint(folder.path());
    EXPECT_TRUE(at::equal(at::rand({5}), next));
    engine.LoadCheckpoint(folder.path(), "", {.load_module_only = true});
    EXPECT_FALSE(at::equal(at::rand({5}), next));
  });
  at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  InRanks(2, [&](const ProcessGroup& group) {
    auto engine = MakeEngine(group);
    group.Barrier();
    before = at::detail::getDefaultCPUGenerator().get_state();
    engine.LoadCheckpoint(folder.path());
    EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), before));
  });
}

TEST(EngineCheckpointTest, RestoresLossScaleAndRestartsBegunStep) {
  const TempDir folder;
  const std::string more = R"(, "fp16": {"enabled": true, "initial_scale_power": 8,
                                         "hysteresis": 1})";
  InRanks(2, [&](const ProcessGroup& group) {
    const auto make = [&] {
      return Initialize(R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1,
                            "optimizer": {"type": "SGD", "params": {"lr": 0.01}})" +
                            more + "}",
                        std::make_shared<Net>(), group);
    };
    const auto micro_batch = [&](Engine<Net>& engine, double factor) {
      engine.Backward(engine.Forward(at::ones({1, 4})).sum() * factor);
      engine.Step();
    };
    auto engine = make();
    engine.SetTrain();
    micro_batch(engine, 1e30);
    micro_batch(engine, 1e30);
    micro_batch(engine, 1);
    EXPECT_EQ(engine.skipped_steps(), 1);
    engine.SaveCheckpoint(folder.path());
    auto other = make();
    other.SetTrain();
    const auto loaded = other.LoadCheckpoint(folder.path());
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->micro_steps, 3);
    EXPECT_EQ(other.core().micro_steps(), 2) << "the begun step restarts";
    EXPECT_EQ(other.skipped_steps(), 1);
    EXPECT_EQ(other.loss_scale(), engine.loss_scale());
    EXPECT_EQ(other.loss_scale(), 128);
  });
}

// Returns the bytes that the calling thread has read so far, from files and other sources.
int64_t BytesRead() {
  std::ifstream io("/proc/thread-self/io");
  std::string key;
  int64_t value = 0;
  while (io >> key >> value && key != "rchar:") {
  }
  return value;
}

int64_t BytesIn(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

TEST(EngineCheckpointTest, EachRankReadsOnlyItsPartOfTheFiles) {
  if (BytesRead() == 0) GTEST_SKIP() << "this kernel does not count what threads read";
  constexpr int kRanks = 4;
  const TempDir folder;
  std::vector<int64_t> read(kRanks);
  InRanks(kRanks, [&](const ProcessGroup& group) {
    const std::string config = Config(kRanks, R"(, "zero_optimization": {"stage": 3,
                                           "stage3_param_persistence_threshold": 4})");
    auto engine = Initialize(config, std::make_shared<Net>(100'000), group);
    engine.SetTrain();
    Train(engine, group, 1);
    engine.SaveCheckpoint(folder.path());
    const int64_t before = BytesRead();
    ASSERT_TRUE(engine.LoadCheckpoint(folder.path()));
    read[static_cast<size_t>(group.rank())] = BytesRead() - before;
  });
  const int64_t bytes = BytesIn(folder / "global_step1");
  ASSERT_GT(bytes, 9'000'000);
  for (const int64_t own : read) {
    // Each rank reads a quarter of the bytes to check them, and a quarter to load its part of the
    // state.
    EXPECT_NEAR(static_cast<double>(own), static_cast<double>(bytes) / 2,
                0.05 * static_cast<double>(bytes));
  }
}

TEST(EngineCheckpointTest, AllRanksNameTheSameDamagedFile) {
  constexpr int kRanks = 3;
  const TempDir folder;
  InRanks(kRanks, [&](const ProcessGroup& group) {
    MakeEngine(group, R"(, "zero_optimization": {"stage": 2})").SaveCheckpoint(folder.path(), "t");
  });
  for (const auto& entry : fs::directory_iterator(folder / "t")) {
    const std::string file = entry.path();
    const auto size = static_cast<std::streamoff>(entry.file_size());
    for (const std::streamoff at : {std::streamoff{10}, size / 2, size - 1}) {
      const auto flip = [&] {
        std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
        stream.seekg(at);
        const int old = stream.get();
        stream.seekp(at);
        stream.put(static_cast<char>(old ^ 1));
      };
      flip();
      const auto errors = RunRanks(kRanks, [&](const ProcessGroup& group) {
        MakeEngine(group).LoadCheckpoint(folder.path(), "t");
      });
      for (const auto& error : errors) {
        EXPECT_THAT(TextOf(error), AllOf(HasSubstr(file), HasSubstr("checksum is wrong")));
        EXPECT_EQ(TextOf(error), TextOf(errors[0]));
      }
      flip();
    }
  }
}

TEST(EngineCheckpointTest, AllRanksRefuseFolderLeasedByAnotherProgram) {
  const TempDir folder;
  LeaseOwner other = ThisProcess("", 1);
  other.process = ReadProcess(getppid()).value().id;
  folder.Write(kLeaseFile, FormatLease({.owner = other}));
  folder.Write("tmp-global_step0-01234567", "of the other");
  for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
         MakeEngine(group).SaveCheckpoint(folder.path());
       })) {
    EXPECT_THAT(TextOf(error), AllOf(HasSubstr(folder.path() + ": a program on "),
                                     HasSubstr("(pid " + std::to_string(getppid()) + ")")));
  }
  EXPECT_TRUE(fs::exists(folder / "tmp-global_step0-01234567"));
}

TEST(EngineCheckpointTest, RefusesAnotherModelAndInvalidUtf8) {
  const TempDir folder;
  InRanks(1, [&](const ProcessGroup& group) {
    auto engine = MakeEngine(group);
    engine.SaveCheckpoint(folder.path());
    EXPECT_THROW(engine.SaveCheckpoint(folder.path(), "t", {{"a", "\xff"}}), TrainError);
    EXPECT_FALSE(fs::exists(folder / "t"));
  });
  for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
         auto engine = Initialize(Config(2), std::make_shared<Net>(7), group);
         engine.LoadCheckpoint(folder.path());
       })) {
    EXPECT_THAT(TextOf(error), AllOf(HasSubstr("tensor first.weight is F32 [6, 4], not F32 [7, 4]"),
                                     HasSubstr("global_step0")));
  }
}

}  // namespace
}  // namespace dslaunch::engine_checkpoint_test
