#include "trainer/base/crc32.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <vector>

namespace dslaunch::crc32_test {
namespace {

TEST(Crc32Test, MatchesZlib) {
  EXPECT_EQ(Crc32("123456789", 9), 0xcbf43926u);
  EXPECT_EQ(Crc32(nullptr, 0, 7), 7u);
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<unsigned char> data(2000);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  for (size_t bytes = 1; bytes < 700; ++bytes) {
    const size_t from = random() % 1000;
    const auto start = static_cast<uint32_t>(random());
    ASSERT_EQ(Crc32(&data[from], bytes, start), crc32_z(start, &data[from], bytes)) << bytes;
  }
}

TEST(Crc32Test, CombinesSumsOfParts) {
  const std::vector<unsigned char> data(1000, 0xa5);
  for (size_t cut = 0; cut <= data.size(); cut += 7) {
    ASSERT_EQ(Crc32(data.data() + cut, data.size() - cut, Crc32(data.data(), cut)),
              Crc32(data.data(), data.size()));
    ASSERT_EQ(CombineCrc32(Crc32(data.data(), cut), Crc32(data.data() + cut, data.size() - cut),
                           data.size() - cut),
              Crc32(data.data(), data.size()));
  }
}

}  // namespace
}  // namespace dslaunch::crc32_test
