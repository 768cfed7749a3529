#include "proto/contract/line_assembler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>

namespace dslaunch::line_assembler_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Lines = std::vector<std::string>;

// Feeds the chunks and returns all lines, including an unfinished last line.
Lines Assemble(const std::vector<std::string>& chunks) {
  LineAssembler assembler;
  Lines lines;
  const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
  for (const std::string& chunk : chunks) assembler.Append(chunk, sink);
  assembler.Finish(sink);
  return lines;
}

TEST(LineAssembler, SplitsAtAllKindsOfLineEnds) {
  EXPECT_THAT(Assemble({""}), IsEmpty());
  EXPECT_THAT(Assemble({"a\nb\n"}), ElementsAre("a", "b"));
  EXPECT_THAT(Assemble({"a\n\n\nb"}), ElementsAre("a", "", "", "b"));
  EXPECT_THAT(Assemble({"a\r\nb\r\n"}), ElementsAre("a", "b"));
  EXPECT_THAT(Assemble({"a\r\n\r\nb"}), ElementsAre("a", "", "b"));
  EXPECT_THAT(Assemble({"a", "bc", "\n", "d"}), ElementsAre("abc", "d"));
  EXPECT_THAT(Assemble({"a\r", "\nb"}), ElementsAre("a", "b"));
  EXPECT_THAT(Assemble({"a\r\r\nb"}), ElementsAre("a", "b"));
}

TEST(LineAssembler, EmitsProgressBarsAsLines) {
  EXPECT_THAT(Assemble({"\r 10%|#", "\r 20%|##", "\r100%|###\ndone\n"}),
              ElementsAre(" 10%|#", " 20%|##", "100%|###", "done"));
}

TEST(LineAssembler, KeepsBytesUnchanged) {
  const std::string bytes("\x1b[31m\xff\x00\tred\x80", 11);
  EXPECT_THAT(Assemble({bytes + "\n"}), ElementsAre(bytes));
}

TEST(LineAssembler, FlushEmitsUnfinishedLineOnce) {
  LineAssembler assembler;
  Lines lines;
  const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
  assembler.FlushPartial(sink);
  assembler.Append("pass", sink);
  assembler.Append("word: ", sink);
  EXPECT_THAT(lines, IsEmpty());
  assembler.FlushPartial(sink);
  assembler.FlushPartial(sink);
  EXPECT_THAT(lines, ElementsAre("password: "));
  // The first newline belongs to the line that was already output.
  assembler.Append("\nnext\n\n", sink);
  EXPECT_THAT(lines, ElementsAre("password: ", "next", ""));
}

TEST(LineAssembler, SplitsLongLinesAtTheLimit) {
  const std::string line(kMaxDisplayLineBytes, 'x');
  EXPECT_THAT(Assemble({line + "\nnext\n"}), ElementsAre(line, "next"));
  EXPECT_THAT(Assemble({line + "y\nnext\n"}), ElementsAre(line, "y", "next"));
  EXPECT_THAT(Assemble({line + line + "\n"}), ElementsAre(line, line));
  EXPECT_THAT(Assemble({line, "\n", "next"}), ElementsAre(line, "next"));
}

TEST(LineAssembler, SplitsBetweenCharacters) {
  for (const std::string character : {"\xc3\xb6", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    for (size_t before = 0; before < 4; ++before) {
      const std::string line = std::string(kMaxDisplayLineBytes - before, 'x') + character + "z";
      const Lines lines = Assemble({line + "\n"});
      std::string joined;
      for (const std::string& part : lines) {
        EXPECT_LE(part.size(), kMaxDisplayLineBytes);
        EXPECT_NE(part.front() & 0xc0, 0x80) << "a torn character";
        joined += part;
      }
      EXPECT_EQ(joined, line) << before;
    }
  }
}

TEST(LineAssembler, MemoryStaysBoundedWithoutLineEnds) {
  LineAssembler assembler;
  size_t given = 0;
  size_t largest = 0;
  const std::string chunk(300'000, 'x');
  for (int i = 0; i < 100; ++i) {
    assembler.Append(chunk, [&](std::string_view line) {
      given += line.size();
      largest = std::max(largest, line.size());
    });
  }
  EXPECT_LE(largest, kMaxDisplayLineBytes);
  EXPECT_GE(given + kMaxDisplayLineBytes, 100 * chunk.size());
}

TEST(LineAssembler, ChunkSizesDoNotChangeTheLines) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> parts = {"a",
                                          "bc",
                                          "\n",
                                          "\n",
                                          "\r",
                                          "\r\n",
                                          "\xc3\xb6",
                                          "\x1b[0m",
                                          "\xff",
                                          "\t",
                                          std::string(kMaxDisplayLineBytes - 3, 'x')};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t n = random() % 30; n > 0; --n) {
      text += parts[random() % (random() % 10 == 0 ? parts.size() : parts.size() - 1)];
    }
    std::vector<std::string> chunks;
    for (size_t begin = 0; begin < text.size();) {
      const size_t size = 1 + random() % (random() % 4 == 0 ? 70'000 : 4);
      chunks.push_back(text.substr(begin, size));
      begin += size;
    }
    ASSERT_EQ(Assemble(chunks), Assemble({text})) << "round " << round;
  }
}

// Returns the CPU time since `start`. Other processes do not lengthen it.
double CpuSecondsSince(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// The limits in these tests are far above linear time and far below quadratic time.
TEST(LineAssembler, ManyLinesTakeLinearTime) {
  std::string chunk;
  for (int i = 0; i < 500; ++i)
    chunk += "step " + std::to_string(i) + " loss 0.123 of a line of usual length 0123456789\n";
  size_t lines = 0;
  LineAssembler assembler;
  const std::clock_t start = std::clock();
  for (int i = 0; i < 2000; ++i) assembler.Append(chunk, [&](std::string_view) { ++lines; });
  EXPECT_EQ(lines, 1'000'000u);
  EXPECT_LT(CpuSecondsSince(start), 5);
}

TEST(LineAssembler, ManyCarriageReturnsTakeLinearTime) {
  const std::string bar = std::string(2'000'000, '\r') + std::string(2'000'000, '\n');
  const std::clock_t start = std::clock();
  EXPECT_EQ(Assemble({bar}).size(), 2'000'000u);
  EXPECT_LT(CpuSecondsSince(start), 5);
}

}  // namespace
}  // namespace dslaunch::line_assembler_test
