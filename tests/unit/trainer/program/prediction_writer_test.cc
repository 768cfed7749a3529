#include "trainer/program/prediction_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
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

  int64_t FilesInFolder() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  std::string folder_ = testing::TempDir() + "/predictions-XXXXXX";
  std::string file_;
};

// Writing beyond `bytes` of a file fails, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(PredictionLineTest, WritesProbabilityOnlyForClasses) {
  EXPECT_EQ(PredictionLine(3, {7, 0.5}), "{\"index\":3,\"prediction\":7,\"probability\":0.5}\n");
  EXPECT_EQ(PredictionLine(0, {0.25, {}}), "{\"index\":0,\"prediction\":0.25}\n");
}

TEST_F(PredictionWriterTest, FileAppearsWithFirstLines) {
  file_ = folder_ + "/out.jsonl";
  std::ofstream(file_) << "old";
  {
    PredictionWriter writer(file_);
    EXPECT_EQ(Content(), "old");
  }
  EXPECT_EQ(Content(), "old") << "a writer without lines changes nothing";
  EXPECT_EQ(FilesInFolder(), 1);
  {
    PredictionWriter writer(file_);
    writer.Write("one\ntwo\n");
    EXPECT_EQ(Content(), "one\ntwo\n");
    writer.Write("three\n");
    EXPECT_EQ(Content(), "one\ntwo\nthree\n");
  }
  EXPECT_EQ(Content(), "one\ntwo\nthree\n") << "lines are kept if the run fails";
  PredictionWriter writer(file_);
  writer.Finish();
  EXPECT_EQ(Content(), "");
  EXPECT_EQ(FilesInFolder(), 1) << "something else was left";
}

TEST_F(PredictionWriterTest, KeepsWholeLinesWhenDiskIsFull) {
  file_ = folder_ + "/out.jsonl";
  PredictionWriter writer(file_);
  writer.Write("0123456\n");
  {
    const FileSizeLimit limit(20);
    EXPECT_THROW(writer.Write("8901234\n0123456\n"), TrainError);
  }
  EXPECT_EQ(Content(), "0123456\n8901234\n");
}

TEST_F(PredictionWriterTest, RefusesWhatIsNotAFile) {
  EXPECT_THROW(PredictionWriter("/nowhere/out.jsonl"), TrainError);
  EXPECT_THROW(PredictionWriter{folder_}, TrainError);
  file_ = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THROW(PredictionWriter{file_}, TrainError);
  EXPECT_TRUE(fs::is_fifo(file_));
}

}  // namespace
}  // namespace dslaunch::prediction_writer_test
