#include "cli/transport/agent_digest.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/transport/agent_binary.h"

namespace dslaunch::agent_digest_test {
namespace {

namespace fs = std::filesystem;

class AgentDigestTest : public testing::Test {
 protected:
  AgentDigestTest() {
    std::string name = testing::TempDir() + "agent-digest-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    Write(agent(), "the agent");
  }
  ~AgentDigestTest() override { fs::remove_all(folder_); }

  static void Write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  static std::string Read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path agent() const { return folder_ / "dslaunch-agent"; }
  fs::path cache() const { return folder_ / "cache" / "dslaunch"; }
  fs::path kept() const { return cache() / "dslaunch-agent.sha256"; }
  std::string Digest() const { return *AgentDigest(agent(), cache()); }
  std::string Right() const { return *Sha256OfFile(agent()); }
  // Replaces the digest in the cache, so that a later call shows whether it used the cache.
  void PlantOtherDigest() const {
    std::string text = Read(kept());
    text.replace(text.size() - 64, 64, std::string(64, 'a'));
    Write(kept(), text);
  }

  fs::path folder_;
};

TEST_F(AgentDigestTest, UsesCachedDigest) {
  EXPECT_EQ(Digest(), Right());
  PlantOtherDigest();
  EXPECT_EQ(Digest(), std::string(64, 'a'));
}

TEST_F(AgentDigestTest, IgnoresCachedDigestOfOtherFile) {
  (void)Digest();
  PlantOtherDigest();
  Write(folder_ / "new", "the agenT");
  fs::rename(folder_ / "new", agent());
  EXPECT_EQ(Digest(), Right());
  EXPECT_EQ(Digest(), Right());
}

TEST_F(AgentDigestTest, ComputesDigestIfCacheIsUnusable) {
  EXPECT_EQ(*AgentDigest(agent(), ""), Right());
  (void)Digest();
  Write(kept(), "nonsense");
  EXPECT_EQ(Digest(), Right());
  PlantOtherDigest();
  ::chmod(kept().c_str(), 0666);
  EXPECT_EQ(Digest(), Right());
  fs::remove_all(cache());
  Write(cache(), "no folder");
  EXPECT_EQ(Digest(), Right());
}

TEST_F(AgentDigestTest, ReportsMissingFile) {
  EXPECT_FALSE(AgentDigest(folder_ / "nothing", cache()).ok());
}

}  // namespace
}  // namespace dslaunch::agent_digest_test
