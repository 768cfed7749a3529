#include "trainer/program/prediction_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "trainer/base/train_error.h"

namespace dslaunch::prediction_writer_test {
namespace {

namespace fs = std::filesystem;

class PredictionWriterTest : public ::testing::Test {
 protected:
  PredictionWriterTest() { folder_ = mkdtemp(folder_.data()); }
  ~PredictionWriterTest() override { fs::remove_all(folder_); }
  std::string Content() const {
    std::ostringstream text;
    text << std::ifstream(file_).rdbuf();
    return text.str();
  }

  std::string folder_ = testing::TempDir() + "/predictions-XXXXXX";
  std::string file_;
};

TEST(PredictionLineTest, WritesProbabilityOnlyForClasses) {
  EXPECT_EQ(PredictionLine(3, {7, 0.5}), "{\"index\":3,\"prediction\":7,\"probability\":0.5}\n");
  EXPECT_EQ(PredictionLine(0, {0.25, {}}), "{\"index\":0,\"prediction\":0.25}\n");
}

TEST_F(PredictionWriterTest, FileAppearsOnlyWhenComplete) {
  file_ = folder_ + "/out.jsonl";
  std::ofstream(file_) << "old";
  {
    PredictionWriter writer(file_);
    writer.Write("new\n");
    EXPECT_EQ(Content(), "old");
  }
  EXPECT_EQ(Content(), "old") << "a writer that was not finished changes nothing";
  PredictionWriter writer(file_);
  writer.Write("one\n");
  writer.Write("two\n");
  writer.Finish();
  EXPECT_EQ(Content(), "one\ntwo\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1)
      << "something else was left";
}

TEST_F(PredictionWriterTest, NamesMissingFolder) {
  EXPECT_THROW(PredictionWriter("/nowhere/out.jsonl"), TrainError);
}

}  // namespace
}  // namespace dslaunch::prediction_writer_test
