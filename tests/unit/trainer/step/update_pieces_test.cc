#include "trainer/step/update_pieces.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace dslaunch::update_pieces_test {
namespace {

// "0-2 2-3": from the first part of each piece to the one after its last.
std::string Cut(const std::vector<int64_t>& elements, int64_t max_elements) {
  std::string text;
  for (const auto& [begin, end] : CutUpdate(elements, max_elements)) {
    text += (text.empty() ? "" : " ") + std::to_string(begin) + "-" + std::to_string(end);
  }
  return text;
}

TEST(UpdatePieces, AreRunsOfPartsWithinTheLimit) {
  EXPECT_EQ(Cut({3, 3, 3, 3}, 6), "0-2 2-4");
  EXPECT_EQ(Cut({3, 3, 3, 3}, 7), "0-2 2-4");
  EXPECT_EQ(Cut({1, 2, 3}, 6), "0-3");
  EXPECT_EQ(Cut({1, 2, 3}, std::numeric_limits<int64_t>::max()), "0-3");
  EXPECT_EQ(Cut({1, 2, 3}, 0), "0-1 1-2 2-3");
}

TEST(UpdatePieces, APartThatIsTooLargeIsAlone) {
  EXPECT_EQ(Cut({9}, 5), "0-1");
  EXPECT_EQ(Cut({1, 9, 1, 1}, 5), "0-1 1-2 2-4");
  EXPECT_EQ(Cut({9, 1, 9}, 5), "0-1 1-2 2-3");
}

TEST(UpdatePieces, WithoutPartsThereIsAnEmptyOne) { EXPECT_EQ(Cut({}, 5), "0-0"); }

}  // namespace
}  // namespace dslaunch::update_pieces_test
