#include "cli/transport/agent_copy.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "base/digest/sha256.h"
#include "base/text/hex.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::agent_copy_test {
namespace {

using State = CopyDialog::State;

TEST(CopyDialogTest, ReadsRequestOfScript) {
  EXPECT_EQ(CopyDialog("12ab").Feed("DSLAUNCH-COPY 12ab gzip\n"), State::kSendGzip);
  EXPECT_EQ(CopyDialog("12ab").Feed("DSLAUNCH-COPY 12ab raw\n"), State::kSendRaw);
  EXPECT_EQ(CopyDialog("12ab").Feed("DSLAUNCH-COPY 12ab have\n"), State::kHave);
  EXPECT_EQ(CopyDialog("12ab").Feed("DSLAUNCH-COPY 12ab wait\n"), State::kWaiting);
}

TEST(CopyDialogTest, WaitsForWholeLineAfterNoise) {
  CopyDialog dialog("12ab");
  EXPECT_EQ(dialog.Feed("Welcome!\nDSLAUNCH-COPY 34cd have\n" + std::string(100'000, 'x')),
            State::kWaiting);
  EXPECT_EQ(dialog.Feed("\n$ DSLAUNCH-COPY 12ab wait\nDSLAUNCH-COPY 12ab gz"), State::kWaiting);
  EXPECT_EQ(dialog.Feed("ip\nDSLAUNCH-COPY 12ab have\n"), State::kSendGzip);
}

std::string OutputOf(const std::string& command) {
  FILE* const program = ::popen(command.c_str(), "r");
  std::string output;
  std::vector<char> piece(64 << 10);
  for (size_t size = 1; size > 0;) {
    size = ::fread(piece.data(), 1, piece.size(), program);
    output.append(piece.data(), size);
  }
  EXPECT_EQ(::pclose(program), 0);
  return output;
}

TEST(PackAgentTest, GzipRestoresTheFile) {
  const TempDir folder;
  for (const size_t size : {size_t{1}, size_t{64} << 10, size_t{300'000}}) {
    std::string content;
    for (uint32_t i = 0; content.size() < size; ++i)  // compressible, but not to a small size
      content += std::to_string(i * 2'654'435'761u);
    content.resize(size);
    const std::string name = std::to_string(size);
    const AgentBinary agent{folder.Write(name, content), /*build_id=*/name, "x86_64", size};
    const auto packed = PackAgent(agent);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    EXPECT_EQ((*packed)->sha256, ToHex(Sha256Of(content)));
    EXPECT_EQ(OutputOf("gzip -dc < " + folder.Write(name + ".gz", (*packed)->gzip)), content);
    EXPECT_EQ(**RawAgent(agent), content);
  }
}

TEST(PackAgentTest, ReportsMissingFile) {
  const auto packed = PackAgent({"/nowhere/agent", "0ddba11", "x86_64", 1});
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.error().message, "cannot open /nowhere/agent: No such file or directory");
}

TEST(CopyGateTest, AllowsEightCopiesAtOnce) {
  CopyGate gate;
  std::vector<CopyGate::Turn> turns;
  while (std::optional<CopyGate::Turn> turn = gate.TryEnter()) turns.push_back(*std::move(turn));
  EXPECT_EQ(turns.size(), 8u);
  turns.pop_back();
  EXPECT_TRUE(gate.TryEnter().has_value());
  EXPECT_TRUE(gate.TryEnter().has_value());  // the previous turn has ended
}

}  // namespace
}  // namespace dslaunch::agent_copy_test
