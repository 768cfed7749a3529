#include "trainer/step/update_weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace dslaunch::cut_update_test {
namespace {

// Returns the pieces as text, such as "0-2 2-3": from the first part of each piece to the part
// after its last.
std::string Cut(const std::vector<int64_t>& elements, int64_t max_elements) {
  std::string text;
  for (const auto& [begin, end] : CutUpdate(elements, max_elements)) {
    text += (text.empty() ? "" : " ") + std::to_string(begin) + "-" + std::to_string(end);
  }
  return text;
}

TEST(CutUpdateTest, CutsRunsOfPartsWithinLimit) {
  EXPECT_EQ(Cut({3, 3, 3, 3}, 6), "0-2 2-4");
  EXPECT_EQ(Cut({3, 3, 3, 3}, 7), "0-2 2-4");
  EXPECT_EQ(Cut({1, 2, 3}, 6), "0-3");
  EXPECT_EQ(Cut({1, 2, 3}, std::numeric_limits<int64_t>::max()), "0-3");
  EXPECT_EQ(Cut({1, 2, 3}, 0), "0-1 1-2 2-3");
}

TEST(CutUpdateTest, PutsTooLargePartIntoSeparatePiece) {
  EXPECT_EQ(Cut({9}, 5), "0-1");
  EXPECT_EQ(Cut({1, 9, 1, 1}, 5), "0-1 1-2 2-4");
  EXPECT_EQ(Cut({9, 1, 9}, 5), "0-1 1-2 2-3");
}

TEST(CutUpdateTest, ReturnsEmptyPieceWithoutParts) { EXPECT_EQ(Cut({}, 5), "0-0"); }

}  // namespace
}  // namespace dslaunch::cut_update_test
