#include "agent/logs/log_tail.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "tests/support/temp_dir.h"

namespace dslaunch::log_tail_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
namespace fs = std::filesystem;

class LogTailTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return root_ / name; }

  void Append(const std::string& name, const std::string& bytes) const {
    const UniqueFd fd(::open(Path(name).c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  // Reads everything that is available now, as a reader does when on_readable is called.
  void TakeAll(LogTail& tail) {
    while (auto chunk = tail.Next(10'000)) {
      EXPECT_LE(chunk->data.size(), 10'000u);
      EXPECT_EQ(chunk->offset, ends_[chunk->id] + chunk->skipped_bytes);
      ends_[chunk->id] = chunk->offset + chunk->data.size();
      data_[chunk->id] += chunk->data;
      skipped_[chunk->id] += chunk->skipped_bytes;
    }
  }

  // Runs the loop until `done` or the time limit. Returns the last result of `done`.
  bool RunUntil(const std::function<bool()>& done, milliseconds limit = milliseconds(10'000)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!done() && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(milliseconds(20));
    }
    return done();
  }

  TempDir dir_;
  fs::path root_ = dir_.path();
  asio::io_context io_;
  std::map<int, std::string> data_;
  std::map<int, uint64_t> ends_;
  std::map<int, uint64_t> skipped_;
};

TEST_F(LogTailTest, NotifiesOfNewBytesAtOnce) {
  Append("a", "old\n");
  LogTail* self = nullptr;
  LogTail tail(io_, [&] { TakeAll(*self); });
  self = &tail;
  tail.AddFile(7, Path("a"));
  EXPECT_TRUE(data_[7].empty());  // on_readable is never called from within AddFile
  ASSERT_TRUE(RunUntil([&] { return data_[7] == "old\n"; }));
  for (int i = 0; i < 50; ++i) {
    const std::string expected = data_[7] + "new\n";
    Append("a", "new\n");
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(RunUntil([&] { return data_[7] == expected; }));
    EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(500));
  }
  EXPECT_TRUE(tail.Drained(7));
  EXPECT_EQ(tail.Remaining(), 0u);
}

TEST_F(LogTailTest, FindsFilesCreatedLater) {
  LogTail* self = nullptr;
  LogTail tail(io_, [&] { TakeAll(*self); });
  self = &tail;
  fs::create_directories(Path("there"));
  tail.AddFile(0, Path("there/log"));
  tail.AddFile(1, Path("not_there/log"));
  RunUntil([] { return false; }, milliseconds(50));
  EXPECT_TRUE(tail.Drained(0));
  fs::create_directories(Path("not_there"));
  Append("there/log", "x\n");
  Append("not_there/log", "y\n");
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(RunUntil([&] { return data_[0] == "x\n"; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(500));
  ASSERT_TRUE(RunUntil([&] { return data_[1] == "y\n"; }));
}

TEST_F(LogTailTest, IdleFileCostsNoCpuTime) {
  Append("a", "x");
  int calls = 0;
  LogTail* self = nullptr;
  LogTail tail(io_, [&] {
    ++calls;
    TakeAll(*self);
  });
  self = &tail;
  tail.AddFile(0, Path("a"));
  ASSERT_TRUE(RunUntil([&] { return calls == 1; }));
  rusage before, after;
  ::getrusage(RUSAGE_THREAD, &before);
  io_.restart();
  io_.run_for(milliseconds(1500));
  ::getrusage(RUSAGE_THREAD, &after);
  EXPECT_EQ(calls, 1);
  EXPECT_LT(after.ru_utime.tv_sec * 1'000'000 + after.ru_utime.tv_usec -
                before.ru_utime.tv_sec * 1'000'000 - before.ru_utime.tv_usec,
            50'000);
}

TEST_F(LogTailTest, DoesNotNotifyAgainWhileTheReaderIsBusy) {
  int calls = 0;
  LogTail tail(io_, [&] { ++calls; });
  tail.AddFile(0, Path("a"));
  for (int i = 0; i < 5; ++i) {
    Append("a", "x");
    RunUntil([] { return false; }, milliseconds(30));
  }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(tail.Remaining(), 5u);
  EXPECT_FALSE(tail.Drained(0));
  TakeAll(tail);
  Append("a", "y");
  EXPECT_TRUE(RunUntil([&] { return calls == 2; }));
}

TEST_F(LogTailTest, ReadsFilesInTurn) {
  Append("a", std::string(50'000, 'a'));
  Append("b", std::string(50'000, 'b'));
  LogTail tail(io_, [] {});
  tail.AddFile(0, Path("a"));
  tail.AddFile(1, Path("b"));
  std::vector<int> order;
  while (auto chunk = tail.Next(10'000)) order.push_back(chunk->id);
  ASSERT_EQ(order.size(), 10u);
  for (size_t i = 1; i < order.size(); ++i) EXPECT_NE(order[i], order[i - 1]);
}

TEST_F(LogTailTest, ReadsTruncatedFileFromItsStart) {
  Append("a", "first contents\n");
  LogTail tail(io_, [] {});
  tail.AddFile(0, Path("a"));
  EXPECT_EQ(tail.Next(100)->data, "first contents\n");
  fs::resize_file(Path("a"), 0);
  EXPECT_EQ(tail.Next(100), std::nullopt);
  Append("a", "second\n");
  const auto chunk = tail.Next(100);
  ASSERT_TRUE(chunk);
  EXPECT_EQ(chunk->offset, 0u);
  EXPECT_EQ(chunk->data, "second\n");
}

TEST_F(LogTailTest, DoesNotFollowLinks) {
  Append("secret", "x");
  fs::create_symlink(Path("secret"), Path("link"));
  LogTail tail(io_, [] {});
  tail.AddFile(0, Path("link"));
  EXPECT_EQ(tail.Next(100), std::nullopt);
}

TEST_F(LogTailTest, ReadsEveryByteOfAGrowingFileOnce) {
  constexpr size_t kBytes = 50u << 20;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::string content;
  std::mt19937 random(seed);
  while (content.size() < kBytes) content += std::to_string(random()) + "\n";
  LogTail* self = nullptr;
  size_t received = 0;
  bool equal = true;
  LogTail tail(io_, [&] {
    while (auto chunk = self->Next(64 * 1024)) {
      EXPECT_EQ(chunk->offset, received);
      equal = equal && content.compare(received, chunk->data.size(), chunk->data) == 0;
      received += chunk->data.size();
    }
  });
  self = &tail;
  Append("a", "");
  tail.AddFile(0, Path("a"));
  std::thread writer([&] {
    const UniqueFd fd(::open(Path("a").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    std::mt19937 sizes(seed + 1);
    for (size_t at = 0; at < content.size();) {
      const size_t size = std::min<size_t>(1 + sizes() % 200'000, content.size() - at);
      const ssize_t count = ::write(fd.get(), content.data() + at, size);
      if (count <= 0) break;
      at += static_cast<size_t>(count);
      if (sizes() % 50 == 0) std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_TRUE(RunUntil([&] { return received == content.size(); }, milliseconds(50'000)));
  writer.join();
  EXPECT_TRUE(equal);
  EXPECT_EQ(received, content.size());
}

TEST_F(LogTailTest, LaggingReaderSkipsToALineStart) {
  std::string content;
  for (int i = 0; content.size() < 1'000'000; ++i) content += "line " + std::to_string(i) + "\n";
  Append("a", content);
  LogTail tail(
      io_, [] {}, 100'000);
  tail.AddFile(0, Path("a"));
  const auto chunk = tail.Next(1000);
  ASSERT_TRUE(chunk);
  EXPECT_GE(chunk->skipped_bytes, content.size() - 50'000);
  EXPECT_LT(chunk->skipped_bytes, content.size() - 49'000);
  EXPECT_EQ(chunk->offset, chunk->skipped_bytes);
  EXPECT_EQ(chunk->data, content.substr(chunk->offset, 1000));
  EXPECT_EQ(content[chunk->offset - 1], '\n');
  std::string rest = chunk->data;
  while (auto more = tail.Next(10'000)) {
    EXPECT_EQ(more->skipped_bytes, 0u);
    rest += more->data;
  }
  EXPECT_EQ(rest, content.substr(chunk->offset));
}

TEST_F(LogTailTest, LaggingReaderSkipsWithinAnEndlessLine) {
  Append("a", std::string(1'000'000, 'x'));
  LogTail tail(
      io_, [] {}, 100'000);
  tail.AddFile(0, Path("a"));
  const auto chunk = tail.Next(1000);
  ASSERT_TRUE(chunk);
  EXPECT_EQ(chunk->skipped_bytes, 950'000u);
  EXPECT_EQ(chunk->data.size(), 1000u);
}

TEST_F(LogTailTest, SkipsHolesInsteadOfSendingZeros) {
  std::string content;
  while (content.size() < 1'000'000) content += "line " + std::to_string(content.size()) + "\n";
  Append("a", content);
  const UniqueFd fd(::open(Path("a").c_str(), O_WRONLY | O_CLOEXEC));
  constexpr uint64_t kHole = 512 * 1024;
  if (::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kHole) != 0)
    GTEST_SKIP() << "this file system has no holes";
  LogTail tail(io_, [] {});
  tail.AddFile(0, Path("a"));
  const auto chunk = tail.Next(1000);
  ASSERT_TRUE(chunk);
  EXPECT_EQ(chunk->offset, chunk->skipped_bytes);
  EXPECT_GE(chunk->offset, kHole);
  EXPECT_LT(chunk->offset, kHole + 100);
  EXPECT_EQ(chunk->data, content.substr(chunk->offset, 1000));
  EXPECT_EQ(content[chunk->offset - 1], '\n');
  // The whole file is freed while a reader is in the middle of it.
  ASSERT_EQ(::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2'000'000), 0);
  const auto rest = tail.Next(1000);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->offset + rest->data.size(), content.size());
  EXPECT_EQ(rest->data, "");
  EXPECT_EQ(tail.Next(1000), std::nullopt);
  Append("a", "new\n");
  EXPECT_EQ(tail.Next(1000)->data, "new\n");
}

TEST_F(LogTailTest, ReadsRetiredFilesBeforeTheirSuccessors) {
  Append("old", "old 1\nold 2\n");
  Append("new", "new\n");
  LogTail* self = nullptr;
  std::string text;
  LogTail tail(io_, [&] {
    while (auto chunk = self->Next(3)) text += chunk->data;
  });
  self = &tail;
  tail.AddFile(0, Path("old"));
  tail.AddFile(1, Path("never written"));
  EXPECT_EQ(tail.Next(3)->data, "old");
  tail.RetireFiles();
  tail.AddFile(0, Path("new"));
  ASSERT_TRUE(RunUntil([&] { return text == " 1\nold 2\nnew\n"; })) << text;
  tail.RetireFiles();
  ASSERT_EQ(tail.Next(3), std::nullopt);
  tail.AddFile(0, Path("third"));
  Append("third", "3");
  EXPECT_TRUE(RunUntil([&] { return text.ends_with("3"); }));
}

TEST_F(LogTailTest, DestructorCancelsPendingCallbacks) {
  for (int i = 0; i < 100; ++i) {
    auto tail = std::make_unique<LogTail>(io_, [] { ADD_FAILURE() << "called after the end"; });
    tail->AddFile(0, Path("a"));
    Append("a", "x");
    tail.reset();
    io_.restart();
    io_.poll();
  }
}

TEST_F(LogTailTest, ReturnsLastLinesOfAFile) {
  EXPECT_EQ(LastLines(Path("missing")), "");
  EXPECT_EQ(LastLines(root_.string()), "");
  Append("empty", "");
  EXPECT_EQ(LastLines(Path("empty")), "");
  Append("few", "a\nb\n");
  EXPECT_EQ(LastLines(Path("few")), "a\nb\n");
  EXPECT_EQ(LastLines(Path("few"), 1), "b\n");
  EXPECT_EQ(LastLines(Path("few"), 2), "a\nb\n");
  Append("few", "cut");
  EXPECT_EQ(LastLines(Path("few"), 1), "cut");
  EXPECT_EQ(LastLines(Path("few"), 2), "b\ncut");
  Append("blank", "\n\n\n");
  EXPECT_EQ(LastLines(Path("blank"), 2), "\n\n");
}

TEST_F(LogTailTest, LimitsLastLinesOfALargeFile) {
  std::string content;
  for (int i = 0; i < 100'000; ++i) content += "line " + std::to_string(i) + "\n";
  Append("a", content);
  const std::string last = LastLines(Path("a"));
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 50);
  EXPECT_EQ(last.substr(0, 11), "line 99950\n");
  EXPECT_EQ(LastLines(Path("a"), 50, 25),
            "line 99998\nline 99999\n");  // excludes the first line, which was cut
  Append("b", std::string(1'000'000, 'x'));
  EXPECT_EQ(LastLines(Path("b")), std::string(64 * 1024, 'x'));
  Append("b", "\n");
  EXPECT_EQ(LastLines(Path("b"), 50, 11), "xxxxxxxxxx\n");
}

}  // namespace
}  // namespace dslaunch::log_tail_test
