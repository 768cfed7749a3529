#include "cli/transport/hello.h"

#include <gmock/gmock.h>

#include <random>
#include <string>

#include "base/os/build_id.h"

namespace dslaunch::hello_test {
namespace {

using State = HelloScanner::State;
using testing::HasSubstr;

constexpr char kNonce[] = "00ff17";
constexpr char kBuildId[] = "0123456789abcdef";

TEST(HelloScannerTest, FindsLineAndKeepsFollowingBytes) {
  HelloScanner scanner(kNonce);
  EXPECT_EQ(scanner.Feed(FormatHello(kNonce, kBuildId) + "PRI * HTTP/2.0"), State::kFound);
  EXPECT_EQ(scanner.build_id(), kBuildId);
  EXPECT_EQ(scanner.leftover(), "PRI * HTTP/2.0");
  EXPECT_EQ(scanner.Skipped(), "");
}

TEST(HelloScannerTest, ReturnsMachineOfStartScript) {
  HelloScanner scanner(kNonce);
  const std::string line = std::string(kMachineMagic) + kNonce + " aarch64\n";
  EXPECT_EQ(scanner.Feed("Welcome!\n" + line.substr(0, line.size() - 1)), State::kNeedMore);
  EXPECT_EQ(scanner.Machine(), "");
  EXPECT_EQ(scanner.Feed("\n"), State::kNeedMore);
  EXPECT_EQ(scanner.Machine(), "aarch64");
  EXPECT_EQ(scanner.Skipped(), "Welcome!");
  EXPECT_EQ(scanner.Feed(FormatHello(kNonce, kBuildId)), State::kFound);
  EXPECT_EQ(scanner.Machine(), "aarch64");

  HelloScanner other(kNonce);
  EXPECT_EQ(other.Feed(std::string(kMachineMagic) + "beef aarch64\n"), State::kNeedMore);
  EXPECT_EQ(other.Machine(), "");
}

TEST(HelloScannerTest, FindsLineAfterNoiseInAnyPieces) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::minstd_rand random(seed);
  for (int round = 0; round < 500; ++round) {
    // Before the hello line comes noise that contains incomplete prefixes and does not end with a
    // newline. After the line come binary bytes that contain another hello.
    std::string noise = "Welcome!\nDSLAUNCH-HELLO beef 12\nDSLAUNCH-HEDSLAUNCH-";
    noise.insert(random() % noise.size(), std::string(random() % 300, 'x'));
    const std::string after = std::string("\0\r\n\xff", 4) + FormatHello(kNonce, "ff");
    const std::string all = noise + FormatHello(kNonce, kBuildId) + after;
    HelloScanner scanner(kNonce);
    State state = State::kNeedMore;
    size_t at = 0;
    while (at < all.size() && state == State::kNeedMore) {
      const size_t size = 1 + random() % 40;
      state = scanner.Feed(std::string_view(all).substr(at, size));
      at = std::min(all.size(), at + size);
    }
    ASSERT_EQ(state, State::kFound);
    EXPECT_EQ(scanner.build_id(), kBuildId);
    EXPECT_EQ(scanner.leftover() + all.substr(at), after);
    EXPECT_EQ(scanner.Skipped(), OneLine(noise, 512));
  }
}

TEST(HelloScannerTest, SkipsLineWithOtherNonce) {
  HelloScanner scanner(kNonce);
  EXPECT_EQ(scanner.Feed(FormatHello("00ff18", kBuildId)), State::kNeedMore);
  EXPECT_EQ(scanner.Feed(FormatHello("00ff1", kBuildId)), State::kNeedMore);
}

TEST(HelloScannerTest, FailsAfter64KiBOfNoise) {
  HelloScanner just_enough(kNonce);
  EXPECT_EQ(just_enough.Feed(std::string(HelloScanner::kMaxNoiseBytes, 'n')), State::kNeedMore);
  EXPECT_EQ(just_enough.Feed(FormatHello(kNonce, kBuildId)), State::kFound);
  EXPECT_EQ(just_enough.Skipped(), std::string(512, 'n'));

  HelloScanner too_much(kNonce);
  EXPECT_EQ(too_much.Feed(std::string(HelloScanner::kMaxNoiseBytes + 100, 'n')), State::kFailed);
  EXPECT_THAT(too_much.reason(), HasSubstr("64 KiB"));
  EXPECT_EQ(too_much.Feed(FormatHello(kNonce, kBuildId)), State::kFailed);
}

TEST(HelloScannerTest, RejectsInvalidBuildId) {
  for (const std::string bad : {"", "xyz", "12 34", "0123\r"}) {
    HelloScanner scanner(kNonce);
    EXPECT_EQ(scanner.Feed(FormatHello(kNonce, bad)), State::kFailed) << bad;
  }
  HelloScanner endless(kNonce);
  EXPECT_EQ(endless.Feed(FormatHello(kNonce, std::string(1000, 'a'))), State::kFailed);
}

TEST(HelloScannerTest, ShowsNoiseOnOnePrintableLine) {
  HelloScanner scanner(kNonce);
  scanner.Feed("\x1b[1mquota\x07\n\n  exceeded\t\xc3\xa4\n");
  EXPECT_EQ(scanner.Skipped(), "[1mquota exceeded");
}

TEST(NonceTest, IsHexadecimalAndUnique) {
  const std::string nonce = MakeNonce();
  EXPECT_EQ(nonce.size(), 32u);
  EXPECT_EQ(nonce.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(nonce, MakeNonce());
}

}  // namespace
}  // namespace dslaunch::hello_test
