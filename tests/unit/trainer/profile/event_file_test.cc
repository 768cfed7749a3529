#include "trainer/profile/event_file.h"

#include <gtest/gtest.h>

namespace dslaunch::event_file_test {
namespace {

// The expected values are from RFC 3720, appendix B.4.
TEST(EventFileTest, Crc32cMatchesRfc3720) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (char i = 0; i < 32; ++i) ascending += i;
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
}

TEST(EventFileTest, RecordHasLengthDataAndChecksums) {
  const std::string record = EventRecord("abc");
  ASSERT_EQ(record.size(), 8 + 4 + 3 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

// The expected bytes were written manually by protobuf's wire format.
TEST(EventFileTest, EncodesScalarAndVersion) {
  EXPECT_EQ(ScalarEvent(1.0, 300, "t", 2.0f),
            std::string("\x09\0\0\0\0\0\0\xf0\x3f"  // wall_time
                        "\x10\xac\x02"              // step
                        "\x2a\x0a\x0a\x08"          // summary with one value
                        "\x0a\x01t"                 // tag
                        "\x15\0\0\0\x40",           // simple_value
                        9 + 3 + 4 + 3 + 5));
  EXPECT_EQ(VersionEvent(1.0).substr(9),
            "\x1a\x0d"
            "brain.Event:2");
}

}  // namespace
}  // namespace dslaunch::event_file_test
