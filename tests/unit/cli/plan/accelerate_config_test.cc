#include "cli/plan/accelerate_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch::accelerate_config_test {
namespace {

using ::testing::HasSubstr;

constexpr char kFsdp[] = "distributed_type: FSDP\nnum_processes: 8\nnum_machines: 2\n";

AccelerateConfig Parsed(const std::string& text) {
  Result<AccelerateConfig> config = ParseAccelerateConfig(text, "f.yaml");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *std::move(config) : AccelerateConfig();
}

std::string Refusal(const std::string& text) {
  const Result<AccelerateConfig> config = ParseAccelerateConfig(text, "f.yaml");
  EXPECT_FALSE(config.ok()) << text;
  return config.ok() ? "" : config.error().message;
}

TEST(ParseAccelerateConfigTest, ReadsCountsAndGpus) {
  const AccelerateConfig config = Parsed(kFsdp);
  EXPECT_EQ(config.num_processes, 8);
  EXPECT_EQ(config.num_machines, 2);
  EXPECT_FALSE(config.chooses_gpus);
  EXPECT_EQ(config.text, kFsdp);
  EXPECT_TRUE(Parsed("distributed_type: MULTI_GPU\ngpu_ids: 0,1\n").chooses_gpus);
  EXPECT_FALSE(Parsed("distributed_type: MULTI_GPU\ngpu_ids: all\n").chooses_gpus);
  EXPECT_EQ(Parsed(R"({"distributed_type": "NO", "num_processes": -1})").num_processes,
            std::nullopt);
}

TEST(ParseAccelerateConfigTest, RejectsSageMakerAndTpus) {
  EXPECT_THAT(Refusal("compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\n"),
              HasSubstr("SageMaker"));
  EXPECT_THAT(Refusal("distributed_type: XLA\n"), HasSubstr("TPUs"));
  EXPECT_THAT(Refusal("zero_optimization: {stage: 3}\n"), HasSubstr("distributed_type"));
  EXPECT_THAT(Refusal("distributed_type: FSDP\nnum_processes: many\n"),
              HasSubstr("f.yaml: num_processes must be"));
  EXPECT_THAT(Refusal("distributed_type: [\n"), HasSubstr("f.yaml:2:1"));
  EXPECT_THAT(Refusal(std::string(kMaxAccelerateConfigBytes + 1, '#')), HasSubstr("64 KiB"));
}

TEST(DefaultAccelerateConfigTest, FindsFileThatAccelerateWrites) {
  const TempDir dir;
  for (const char* folder : {"hf/accelerate", "xdg/huggingface/accelerate",
                             "home/.cache/huggingface/accelerate", "home/mine/accelerate"})
    std::filesystem::create_directories(dir / folder);
  const std::string home = "HOME=" + (dir / "home");
  EXPECT_EQ(DefaultAccelerateConfig({home}), "");
  const std::string cached =
      dir.Write("home/.cache/huggingface/accelerate/default_config.json", "{}");
  EXPECT_EQ(DefaultAccelerateConfig({home}), cached);
  const std::string xdg = dir.Write("xdg/huggingface/accelerate/default_config.yaml", "");
  EXPECT_EQ(DefaultAccelerateConfig({home, "XDG_CACHE_HOME=" + (dir / "xdg")}), xdg);
  const std::string hf = dir.Write("hf/accelerate/default_config.yaml", "");
  EXPECT_EQ(DefaultAccelerateConfig({home, "HF_HOME=" + (dir / "hf")}), hf);
  const std::string mine = dir.Write("home/mine/accelerate/default_config.yaml", "");
  EXPECT_EQ(DefaultAccelerateConfig({home, "HF_HOME=~/mine"}), mine);
}

class TakeNumProcessesTest : public ::testing::Test {
 protected:
  // Returns the number of ranks that `text` gives to this machine; 0 if it sets none.
  int Taken(const std::string& text) {
    LaunchOptions options = options_;
    TakeNumProcesses(Parsed(text), info_, options);
    notices_ = options.notices.size();
    return options.num_gpus.value_or(0);
  }
  LaunchOptions options_;
  PlanInfo info_;
  size_t notices_ = 0;
};

TEST_F(TakeNumProcessesTest, CountsRanksOfThisMachine) {
  EXPECT_EQ(Taken("distributed_type: FSDP\nnum_processes: 3\n"), 3);
  EXPECT_EQ(notices_, 1u);
  EXPECT_EQ(Taken(kFsdp), 0) << "two machines need to be named";
  EXPECT_EQ(Taken("distributed_type: FSDP\n"), 0);
}

TEST_F(TakeNumProcessesTest, KeepsCountOfOtherOptions) {
  const char* const three = "distributed_type: FSDP\nnum_processes: 3\n";
  options_.num_gpus = 2;
  EXPECT_EQ(Taken(three), 2);
  options_ = {};
  options_.hostfile = "hosts";
  EXPECT_EQ(Taken(three), 0);
  options_ = {};
  options_.num_nodes = 2;
  EXPECT_EQ(Taken(three), 0);
  EXPECT_EQ(notices_, 0u);
}

TEST(CountsNoticeTest, NamesEachNumberThatDiffers) {
  const AccelerateConfig config = Parsed(kFsdp);
  EXPECT_EQ(CountsNotice(config, 8, 2), "");
  EXPECT_EQ(CountsNotice(config, 4, 2),
            "f.yaml: num_processes 8 not obeyed, as this job has 4 ranks on 2 nodes");
  EXPECT_EQ(CountsNotice(config, 1, 1),
            "f.yaml: num_processes 8 and num_machines 2 not obeyed, as this job has 1 rank on 1 "
            "node");
  EXPECT_EQ(CountsNotice(config, 0, 1),
            "f.yaml: num_machines 2 not obeyed, as this job has 1 node");
  EXPECT_EQ(CountsNotice(config, 0, 0), "");
  EXPECT_EQ(CountsNotice(Parsed("distributed_type: FSDP\n"), 4, 2), "");
}

TEST(HuggingFaceImportTest, FindsModuleInEveryFormOfImport) {
  EXPECT_EQ(HuggingFaceImport("import os\nimport accelerate\n"), "accelerate");
  EXPECT_EQ(HuggingFaceImport("import os, transformers as t\n"), "transformers");
  EXPECT_EQ(HuggingFaceImport("def f():\n    from trl.trainer import SFTTrainer\n"), "trl");
  EXPECT_EQ(HuggingFaceImport("from accelerate import Accelerator\r\n"), "accelerate");
  EXPECT_EQ(HuggingFaceImport("import accelerated, mytrl\nfrom .trl import x\n# import trl\n"), "");
  EXPECT_EQ(HuggingFaceImport(""), "");
}

class IgnoredDefaultTest : public ::testing::Test {
 protected:
  IgnoredDefaultTest() {
    std::filesystem::create_directories(dir_ / "accelerate");
    dir_.Write("accelerate/default_config.yaml", kFsdp);
    dir_.Write("t.py", "import transformers\n");
    options_.program = {"t.py"};
  }
  std::string Notice() const {
    return IgnoredDefaultNotice(options_, {"HF_HOME=" + dir_.path()}, dir_.path());
  }
  TempDir dir_;
  LaunchOptions options_;
};

TEST_F(IgnoredDefaultTest, NamesFileModuleAndOption) {
  EXPECT_EQ(Notice(), dir_ / "accelerate/default_config.yaml" +
                          " is not obeyed (t.py imports transformers); --accelerate_config "
                          "default obeys it");
  options_.program = {"python3", "-X", "dev", "t.py", "--lr", "1"};
  EXPECT_THAT(Notice(), HasSubstr("t.py imports transformers"));
  options_.program = {"t"};
  options_.form = ProgramForm::kModule;
  EXPECT_THAT(Notice(), HasSubstr("t.py imports transformers"));
}

TEST_F(IgnoredDefaultTest, IsEmptyForOtherProgramsAndWithOption) {
  options_.accelerate_config = "default";
  EXPECT_EQ(Notice(), "");
  options_.accelerate_config.reset();
  options_.program = {"./a.out"};
  EXPECT_EQ(Notice(), "");
  dir_.Write("t.py", "import torch\n");
  options_.program = {"t.py"};
  EXPECT_EQ(Notice(), "");
  EXPECT_EQ(IgnoredDefaultNotice(options_, {"HF_HOME=/nowhere"}, dir_.path()), "");
}

TEST(ReadAccelerateConfigTest, RefusesContradictingOptions) {
  const TempDir dir;
  dir.Write("f.yaml", "distributed_type: MULTI_GPU\ngpu_ids: 0,1\n");
  LaunchOptions options;
  options.accelerate_config = "f.yaml";
  const auto read = [&] { return ReadAccelerateConfig(options, {"HOME=/nowhere"}, dir.path()); };
  ASSERT_TRUE(read().ok());
  EXPECT_EQ((*read())->path, dir / "f.yaml");
  options.virtual_local_rank = true;
  EXPECT_THAT(read().error().message, HasSubstr("gpu_ids chooses the GPUs, and so does "
                                                "--virtual_local_rank"));
  options.accelerate_config = "default";
  EXPECT_THAT(read().error().message, HasSubstr("write it with: accelerate config"));
  options.mode = LaunchOptions::Mode::kTrain;
  EXPECT_THAT(read().error().message, HasSubstr("is for Python programs"));
  options.accelerate_config.reset();
  EXPECT_FALSE(read()->has_value());
}

}  // namespace
}  // namespace dslaunch::accelerate_config_test
