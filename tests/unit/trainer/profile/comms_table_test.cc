#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/profile/comms_logger.h"

namespace dslaunch::comms_table_test {
namespace {

using ::testing::ContainsRegex;

TEST(CommsTableTest, ListsOperationsBySize) {
  const std::string text = CommsTable({{{"all_reduce", 4'000'000}, {.calls = 2, .seconds = 0.008}},
                                       {{"broadcast", 1024}, {.calls = 1, .seconds = 0.001}}},
                                      /*ranks=*/4);
  EXPECT_THAT(text, ContainsRegex("all_reduce +3.8 MiB +2 +8.000 ms +4.000 ms +1.000 +1.500\n"));
  EXPECT_THAT(text, ContainsRegex("broadcast +1.0 KiB +1 +1.000 ms +1.000 ms +0.001 +0.001"));
}

TEST(CommsTableTest, HandlesNoExchanges) { EXPECT_EQ(CommsTable({}, 2), "communication: none"); }

TEST(CommsTableTest, PrintsLineForOperation) {
  EXPECT_EQ(CommsLine("all_reduce", 4 << 20, 0.004, 2),
            "all_reduce of 4.0 MiB in 4.000 ms: 1.049 GB/s, on the bus 1.049 GB/s");
}

}  // namespace
}  // namespace dslaunch::comms_table_test
