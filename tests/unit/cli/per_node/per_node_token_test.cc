#include "cli/per_node/per_node_token.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>

#include "base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::per_node_token_test {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = "5f0c9a317be84d2612aa7ee3c0d8b946";

class TokenTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& content, mode_t mode = 0600) {
    const std::string path = folder_.Write("token", content);
    chmod(path.c_str(), mode);
    return path;
  }
  std::string Refusal(const std::optional<std::string>& file, const char* fd = nullptr) {
    const auto token = ReadToken(file, fd);
    EXPECT_FALSE(token.ok());
    if (token.ok()) return "";
    EXPECT_EQ(token.error().code, ExitCode::kBadInput);
    EXPECT_EQ(token.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(token.error().message.find(kGood), std::string::npos) << "it is a secret";
    return token.error().message;
  }

  TempDir folder_;
};

TEST_F(TokenTest, ReturnsNoTokenIfNoneIsGiven) {
  EXPECT_EQ(*ReadToken(std::nullopt, nullptr), std::nullopt);
}

TEST_F(TokenTest, StripsEndOfLine) {
  EXPECT_EQ(*ReadToken(Write(std::string(kGood) + "\r\n"), nullptr), kGood);
  EXPECT_EQ(*ReadToken(Write(kGood), nullptr), kGood);
}

TEST_F(TokenTest, ReadsAndClosesDescriptor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  UniqueFd in(ends[1]);
  ASSERT_EQ(write(in.get(), kGood, sizeof kGood - 1), 32);
  in.Reset();
  EXPECT_EQ(*ReadToken(std::nullopt, std::to_string(ends[0]).c_str()), kGood);
  EXPECT_EQ(fcntl(ends[0], F_GETFD), -1);
}

TEST_F(TokenTest, PrefersFileToDescriptor) {
  EXPECT_EQ(*ReadToken(Write(kGood), "no number"), kGood);
}

TEST_F(TokenTest, RefusesFileThatOthersMayReadOrWrite) {
  for (const mode_t mode : {0640u, 0604u, 0620u}) {
    EXPECT_THAT(Refusal(Write(kGood, mode)), HasSubstr("chmod 600"));
  }
}

TEST_F(TokenTest, RefusesMissingAndSpecialFiles) {
  EXPECT_THAT(Refusal(folder_ / "none"), HasSubstr("No such file"));
  EXPECT_THAT(Refusal(folder_.path()), HasSubstr("not a file"));
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(fifo), HasSubstr("not a file"));
}

TEST_F(TokenTest, RefusesTooShortOrTooLongToken) {
  EXPECT_THAT(Refusal(Write("")), HasSubstr("32 to 4096 characters, this one 0"));
  EXPECT_THAT(Refusal(Write(std::string(kGood, 31) + "\n")), HasSubstr("this one 31"));
  EXPECT_THAT(Refusal(Write(std::string(5000, 'x'))), HasSubstr("this one more"));
}

TEST_F(TokenTest, RefusesGuessableToken) {
  for (const std::string& weak :
       {std::string(64, 'x'), std::string("secretsecretsecretsecretsecretsecret"),
        std::string("0123456789abcdef0123456789abcdef"),
        std::string("01101001100101101001011001101001"),
        std::string("password-password-password-password")}) {
    const std::string refusal = Refusal(Write(weak));
    EXPECT_THAT(refusal, HasSubstr("it could be guessed")) << weak;
    EXPECT_THAT(refusal, HasSubstr("openssl rand -hex 32")) << weak;
    EXPECT_EQ(refusal.find(weak), std::string::npos);
  }
  EXPECT_TRUE(ReadToken(Write("Qk3vX0b1pZ8mT5yLr9sWj2uC7nEa4dHf"), nullptr).ok());
}

TEST_F(TokenTest, CommandsOfOneFolderShareOneToken) {
  const std::string folder = folder_ / "jobs";
  const Result<std::string> first = ShareToken(folder, "slurm-1.0.token");
  ASSERT_TRUE(first.ok()) << first.error().message;
  const Result<std::string> second = ShareToken(folder, "slurm-1.0.token");
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(*first, *second);
  const auto token = ReadToken(*first, nullptr);
  ASSERT_TRUE(token.ok()) << token.error().message;
  EXPECT_GE((*token)->size(), kMinTokenBytes);
  struct stat status {};
  ASSERT_EQ(stat(first->c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto other = ReadToken(*ShareToken(folder, "slurm-1.1.token"), nullptr);
  EXPECT_NE(**other, **token);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
  chmod(folder.c_str(), 0777);
  const Result<std::string> refused = ShareToken(folder, "slurm-1.2.token");
  EXPECT_FALSE(refused.ok()) << "others may write there";
}

TEST_F(TokenTest, RefusesInvalidDescriptors) {
  for (const char* text : {"", "x", "3x", "-1", "0", "1", "2", "99999", "99999999999999999999"}) {
    EXPECT_THAT(Refusal(std::nullopt, text), HasSubstr(kTokenFdVariable)) << text;
  }
}

}  // namespace
}  // namespace dslaunch::per_node_token_test
