#include "trainer/profile/monitors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "trainer/base/train_error.h"

namespace dslaunch::monitors_test {
namespace {

std::string ReadAll(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

class MonitorsTest : public ::testing::Test {
 protected:
  MonitorsTest() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  ~MonitorsTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_ = testing::TempDir() + "/monitors-XXXXXX";
};

TEST_F(MonitorsTest, AppendsToCsvFileOfEachScalar) {
  MonitorsConfig config;
  config.csv = MonitorConfig{.enabled = true, .output_path = folder_ + "/out", .job_name = "job"};
  Monitors(config).Write(8, {{"Train/Samples/lr", 0.5}, {"Train/Samples/train_loss", 1.0 / 3}});
  Monitors again(config);
  EXPECT_TRUE(again.any());
  again.Write(16, {{"Train/Samples/lr", 0.25}});
  EXPECT_EQ(ReadAll(folder_ + "/out/job/Train_Samples_lr.csv"),
            "step,Train_Samples_lr\n8,0.5\n16,0.25\n");
  EXPECT_EQ(ReadAll(folder_ + "/out/job/Train_Samples_train_loss.csv"),
            "step,Train_Samples_train_loss\n8,0.33333333333333331\n");
}

TEST_F(MonitorsTest, WritesNothingIfNotConfigured) {
  Monitors none(MonitorsConfig{});
  EXPECT_FALSE(none.any());
  none.Write(8, {{"a", 1}});
}

TEST_F(MonitorsTest, NamesFolderThatCannotBeCreated) {
  std::ofstream(folder_ + "/file") << "x";
  MonitorsConfig config;
  config.tensorboard =
      MonitorConfig{.enabled = true, .output_path = folder_ + "/file", .job_name = "job"};
  try {
    Monitors monitors(config);
    FAIL();
  } catch (const TrainError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("engine.tensorboard.output_path"));
    EXPECT_THAT(error.what(), testing::HasSubstr("/file/job"));
  }
}

}  // namespace
}  // namespace dslaunch::monitors_test
