#include "agent/stacks/python_stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "agent/stacks/line_table.h"
#include "tests/stacks/memory_image.h"

namespace dslaunch::python_stack_test {
namespace {

using ::testing::HasSubstr;

// Returns the image of a program that ran on this Python version. Its main thread reads a pipe in a
// comprehension, and its other thread waits for an event.
MemoryImage Image(const std::string& version) {
  const std::string path = std::string(DSLAUNCH_PYTHON_IMAGES) + "/cpython-" + version;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return MemoryImage(std::string(std::istreambuf_iterator<char>(file), {}));
}

PythonLayout LayoutOf(MemoryImage& image) {
  const Result<std::optional<PythonLayout>> layout = FindLayout(image.maps(), image);
  EXPECT_TRUE(layout.ok() && *layout) << (layout.ok() ? "none" : layout.error().message);
  return layout.ok() && *layout ? **layout : PythonLayout();
}

// Converts an image of 3.13 to an image of 3.14, in which offsets are in another order and pointers
// to code have tag bits.
void MakeNewer(MemoryImage& image, const PythonLayout& layout) {
  const DebugWords old = image.ReadValue<DebugWords>(layout.runtime).value();
  DebugWords words = {};
  const auto move = [&](size_t from, size_t count, size_t to) {
    std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(from), count,
                words.begin() + static_cast<std::ptrdiff_t>(to));
  };
  move(0, 10, 0);    // words up to threads_head
  move(10, 9, 11);   // words after the new threads_main
  move(19, 9, 22);   // words of thread, after two new generations
  move(28, 6, 31);   // words of frame
  move(34, 10, 39);  // words of code, after two new members of frames
  words[1] = 0x030e00f0;
  const auto read = [&](uint64_t address) { return image.ReadValue<uint64_t>(address).value(); };
  const PythonOffsets& at = layout.offsets;
  uint64_t interpreter = read(layout.runtime + at.interpreters_head);
  for (uint64_t thread = read(interpreter + at.threads_head); thread != 0;
       thread = read(thread + at.thread_next)) {
    for (uint64_t frame = read(thread + at.thread_frame); frame != 0;
         frame = read(frame + at.frame_previous))
      image.Write(frame + at.frame_code, read(frame + at.frame_code) | 1);
  }
  image.Write(layout.runtime, words);
}

std::vector<PythonFrame> MainFrames(int minor) {
  constexpr int kFirstQualified = 11, kFirstInlined = 12;
  const std::string load = minor >= kFirstQualified ? "Loader.load" : "load";
  std::vector<PythonFrame> frames = {{load, "/tmp/image.py", 7},
                                     {"größe", "/tmp/image.py", 11},
                                     {"<module>", "/tmp/image.py", 18}};
  if (minor < kFirstInlined) {
    frames.insert(frames.begin(),
                  {minor >= kFirstQualified ? "Loader.load.<locals>.<listcomp>" : "<listcomp>",
                   "/tmp/image.py", 7});
  }
  return frames;
}

void ExpectProgram(MemoryImage& image, const PythonLayout& layout) {
  const PythonStacks stacks = ReadPythonStacks(image, layout, image.tids());
  EXPECT_FALSE(stacks.torn || stacks.cut);
  ASSERT_EQ(stacks.threads.size(), 2u);
  EXPECT_EQ(stacks.threads[0].tid, image.tids()[0]);
  EXPECT_EQ(stacks.threads[1].tid, image.tids()[1]);
  EXPECT_EQ(stacks.threads[0].frames, MainFrames(layout.minor));
  EXPECT_THAT(stacks.threads[1].frames.front().file, HasSubstr("/threading.py"));
  EXPECT_NE(stacks.threads[0].signature, stacks.threads[1].signature);
}

TEST(PythonStackTest, ReadsImagesOfAllVersions) {
  int minor = 8;
  for (const char* version : {"3.8.18", "3.9.18", "3.10.13", "3.11.7", "3.12.1", "3.13.0"}) {
    SCOPED_TRACE(version);
    MemoryImage image = Image(version);
    const PythonLayout layout = LayoutOf(image);
    EXPECT_EQ(layout.minor, minor++);
    ExpectProgram(image, layout);
  }
}

TEST(PythonStackTest, ReadsImageWithTaggedCode) {
  MemoryImage image = Image("3.13.0");
  MakeNewer(image, LayoutOf(image));
  const PythonLayout layout = LayoutOf(image);
  EXPECT_EQ(layout.minor, 14);
  ExpectProgram(image, layout);
}

TEST(PythonStackTest, RefusesUnknownVersionByName) {
  MemoryImage image = Image("3.13.0");
  const uint64_t runtime = LayoutOf(image).runtime;
  image.Write(runtime + 8, uint64_t{0x031000f0});
  const Result<std::optional<PythonLayout>> newer = FindLayout(image.maps(), image);
  ASSERT_FALSE(newer.ok());
  EXPECT_EQ(newer.error().message, "CPython 3.16 is not known");
  image.Write(runtime + 8, uint64_t{0x030d00f0});
  image.Write(runtime + 16, uint64_t{1});
  const Result<std::optional<PythonLayout>> threaded = FindLayout(image.maps(), image);
  ASSERT_FALSE(threaded.ok());
  EXPECT_EQ(threaded.error().message, "free-threaded CPython 3.13 is not known");
  image.Write(runtime + 16, uint64_t{0});
  image.Write(runtime + 8 * 9, uint64_t{1} << 40);  // changes threads_head
  const Result<std::optional<PythonLayout>> wrong = FindLayout(image.maps(), image);
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("cannot be right"));
}

TEST(PythonStackTest, EndsWalkOfCycleAndMarksItTorn) {
  for (const char* version : {"3.10.13", "3.12.1"}) {
    MemoryImage image = Image(version);
    const PythonLayout layout = LayoutOf(image);
    const PythonOffsets& at = layout.offsets;
    const auto read = [&](uint64_t address) { return image.ReadValue<uint64_t>(address).value(); };
    const uint64_t interpreter = read(layout.runtime + at.interpreters_head);
    const uint64_t thread = read(interpreter + at.threads_head);
    uint64_t frame = read(thread + at.thread_frame);
    if (at.cframe_frame != PythonOffsets::kNone) frame = read(frame + at.cframe_frame);
    image.Write(frame + at.frame_previous, frame);
    const PythonStacks stacks = ReadPythonStacks(image, layout, image.tids());
    EXPECT_TRUE(stacks.torn);
    ASSERT_EQ(stacks.threads.size(), 2u);
    EXPECT_EQ(stacks.threads[0].frames, MainFrames(layout.minor)) << "the other thread is read";
    EXPECT_TRUE(stacks.threads[1].frames.empty());
  }
}

TEST(PythonStackTest, EndsListOfThreadsThatIsACycle) {
  MemoryImage image = Image("3.11.7");
  const PythonLayout layout = LayoutOf(image);
  const PythonOffsets& at = layout.offsets;
  const auto read = [&](uint64_t address) { return image.ReadValue<uint64_t>(address).value(); };
  const uint64_t thread = read(read(layout.runtime + at.interpreters_head) + at.threads_head);
  image.Write(thread + at.thread_next, thread);
  EXPECT_TRUE(ReadPythonStacks(image, layout, image.tids()).torn);
}

TEST(PythonStackTest, LeavesOutThreadsThatHaveEnded) {
  MemoryImage image = Image("3.12.1");
  const PythonLayout layout = LayoutOf(image);
  const std::vector<pid_t> tids = {image.tids()[0], 1};
  const PythonStacks stacks = ReadPythonStacks(image, layout, tids);
  ASSERT_EQ(stacks.threads.size(), 1u);
  EXPECT_EQ(stacks.threads[0].frames, MainFrames(12));
}

TEST(PythonLayoutTest, ReadsMinorVersionOfNames) {
  EXPECT_EQ(MinorOfName("libpython3.8.so.1.0"), 8);
  EXPECT_EQ(MinorOfName("python3.11"), 11);
  for (const char* name : {"python3", "libpython3.so", "python2.7", "", "cpython3.8"})
    EXPECT_EQ(MinorOfName(name), std::nullopt) << name;
}

TEST(PythonLayoutTest, FindsNoneWithoutMappings) {
  MemoryImage empty("");
  const Result<std::optional<PythonLayout>> layout = FindLayout({}, empty);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(*layout, std::nullopt);
}

std::vector<std::byte> Bytes(const std::vector<int>& values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(LineTableTest, FindsLinesOfPairs) {
  const std::vector<std::byte> table = Bytes({4, 1, 6, 0xff, 2, 10});  // 0xff is -1
  EXPECT_EQ(FindLine(9, table, 100, -1), 100);
  EXPECT_EQ(FindLine(9, table, 100, 3), 100);
  EXPECT_EQ(FindLine(9, table, 100, 4), 101);
  EXPECT_EQ(FindLine(9, table, 100, 10), 100);
  EXPECT_EQ(FindLine(9, table, 100, 1'000), 110);
}

TEST(LineTableTest, FindsLinesOfRanges) {
  // 0x80 means that there is no line.
  const std::vector<std::byte> table = Bytes({4, 1, 2, 0x80, 6, 0xff});
  EXPECT_EQ(FindLine(10, table, 100, 0), 101);
  EXPECT_EQ(FindLine(10, table, 100, 4), 0);
  EXPECT_EQ(FindLine(10, table, 100, 6), 100);
  EXPECT_EQ(FindLine(10, table, 100, 12), 0) << "behind the table";
}

TEST(LineTableTest, SurvivesMalformedLocations) {
  EXPECT_EQ(FindLine(11, {}, 5, 0), 0);
  EXPECT_EQ(FindLine(11, Bytes({0x80 | (14 << 3)}), 5, 0), 0) << "a number is missing";
  EXPECT_EQ(FindLine(11, Bytes({0x80 | (13 << 3), 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f}), 5, 0), 0);
  EXPECT_EQ(FindLine(11, Bytes({1, 2, 3}), 5, 0), 0) << "no entry begins";
  EXPECT_EQ(FindLine(11, Bytes({0x80 | (11 << 3) | 1, 0, 0}), 5, 2), 6);
}

}  // namespace
}  // namespace dslaunch::python_stack_test
