#include "agent/host/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace dslaunch::interpreter_test {
namespace {

using ::testing::HasSubstr;

std::string Head(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head(kMaxInterpreterHead, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return head;
}

TEST(ReadInterpreterTest, ReadsFirstWordOfAScriptsFirstLine) {
  EXPECT_EQ(ReadInterpreter("#!/bin/sh\necho\n")->path, "/bin/sh");
  EXPECT_EQ(ReadInterpreter("#! \t/usr/bin/env python3\n")->path, "/usr/bin/env");
  EXPECT_FALSE(ReadInterpreter("#!/bin/sh\n")->ends_with_return);
  EXPECT_TRUE(ReadInterpreter("#!/bin/sh\r\n")->ends_with_return);
  EXPECT_EQ(ReadInterpreter("#!/bin/sh\r\n")->path, "/bin/sh");
  for (const std::string text : {"", "#!", "#!\n", "#! \n", "#!/bin/sh", "echo\n", "#\n!/bin/sh\n"})
    EXPECT_FALSE(ReadInterpreter(text)) << text;
}

TEST(ReadInterpreterTest, ReadsLoaderOfAnElfProgram) {
  const std::string head = Head("/bin/sh");
  const std::optional<Interpreter> loader = ReadInterpreter(head);
  ASSERT_TRUE(loader);
  EXPECT_TRUE(loader->is_loader);
  EXPECT_THAT(loader->path, HasSubstr("/ld-"));
  for (size_t size = 0; size < 1'000; ++size) (void)ReadInterpreter(head.substr(0, size));
}

TEST(CheckInterpreterTest, RejectsMissingInterpreterAndCarriageReturn) {
  const TempDir dir;
  const auto check = [&](const std::string& text) {
    const std::string path = dir / "run.sh";
    std::ofstream(path, std::ios::binary) << text;
    const Result<void> result = CheckInterpreter(path, dir / "", "./run.sh", "node1");
    if (result.ok()) return std::string();
    EXPECT_EQ(result.error().code, ExitCode::kCannotExecute);
    return result.error().message;
  };
  EXPECT_EQ(check("#!/bin/sh -e\n"), "");
  EXPECT_EQ(check("no script\n"), "");
  EXPECT_EQ(check("#!/no/such/python3\n"),
            "node1: program './run.sh' cannot be started: its interpreter /no/such/python3 (in its "
            "first line) is not there or not executable");
  EXPECT_THAT(check("#!/bin/sh\r\necho\r\n"),
              HasSubstr("its first line ends with a carriage return"));
  EXPECT_THAT(check("#!/usr/bin/env python3\r\n"), HasSubstr("sed -i 's/\\r$//' ./run.sh"));
  std::string elf = Head("/bin/sh");
  elf.replace(elf.find("/ld-"), 4, "/no-");
  EXPECT_THAT(check(elf), HasSubstr("its loader /"));
}

}  // namespace
}  // namespace dslaunch::interpreter_test
