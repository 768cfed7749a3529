#include "agent/frames/stack_snapshot.h"

#include <gtest/gtest.h>

namespace dslaunch {
namespace {

TEST(ParseWaitingRegisters, ReturnsStackPointerAndInstruction) {
  const auto registers =
      ParseWaitingRegisters("0 0x3 0x7ffd1 0x1 0x0 0x0 0x0 0x7ffd0010 0x7f0020\n");
  ASSERT_TRUE(registers);
  EXPECT_EQ(registers->sp, 0x7ffd0010u);
  EXPECT_EQ(registers->pc, 0x7f0020u);
}

TEST(ParseWaitingRegisters, ReadsThreadThatWaitsOutsideOfCalls) {
  const auto registers = ParseWaitingRegisters("-1 0x7ffd0010 0x7f0020\n");
  ASSERT_TRUE(registers);
  EXPECT_EQ(registers->pc, 0x7f0020u);
}

TEST(ParseWaitingRegisters, RefusesOtherTexts) {
  for (const char* text : {"running\n", "", "0 0x3\n", "-1 0x0 0x0\n", "0 1 2 3 4 5 6 7 8\n",
                           "-1 0x7ffd0010 0x7f0020zz\n", "0 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8 0x9\n"})
    EXPECT_FALSE(ParseWaitingRegisters(text)) << text;
}

}  // namespace
}  // namespace dslaunch
