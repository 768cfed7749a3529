// Tests which files and folders are copied, and their names in the copy.
#include "cli/session/copy_list.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/text/size_text.h"

namespace dslaunch::copy_list_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class CopyListTest : public testing::Test {
 protected:
  CopyListTest() {
    char name[] = "/tmp/copy-list-XXXXXX";
    root_ = fs::canonical(::mkdtemp(name));
    here_ = root_ + "/here";
    fs::create_directories(here_ + "/bin");
    fs::create_directories(root_ + "/elsewhere/deep");
    Write("here/a.out", "aaa");
    Write("here/bin/tool", "tool");
    Write("elsewhere/data", "dddd");
    Write("elsewhere/deep/x", "");
  }
  ~CopyListTest() override { fs::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ + "/" + name) << text;
  }
  Result<std::shared_ptr<const CopyList>> List(const std::vector<std::string>& files,
                                               const std::vector<std::string>& folders = {}) {
    return ListCopies(files, folders, here_);
  }
  std::vector<std::string> Paths(const CopyList& list) {
    std::vector<std::string> paths;
    for (const pb::CopyEntry& entry : list.entries) paths.push_back(entry.path());
    return paths;
  }
  void ExpectRefused(const std::vector<std::string>& files, const std::vector<std::string>& folders,
                     const std::string& why) {
    const auto list = List(files, folders);
    ASSERT_FALSE(list.ok());
    EXPECT_THAT(list.error().message, HasSubstr(why));
  }

  std::string root_;
  std::string here_;
};

TEST_F(CopyListTest, KeepsPathsBelowWorkingFolder) {
  const auto list = List({"./a.out", "bin/tool", "../elsewhere/data"});
  ASSERT_TRUE(list.ok()) << list.error().message;
  EXPECT_THAT(Paths(**list), ElementsAre("a.out", "bin", "bin/tool", "data"));
  EXPECT_EQ((*list)->num_files, 3u);
  EXPECT_EQ((*list)->bytes, 11u);
  EXPECT_EQ((*list)->PlaceOf("a.out", here_), "a.out");
  EXPECT_EQ((*list)->PlaceOf("./bin/../bin/tool", here_), "bin/tool");
  EXPECT_EQ((*list)->PlaceOf(root_ + "/elsewhere/data", here_), "data");
  EXPECT_EQ((*list)->PlaceOf("tool", here_), "");
}

TEST_F(CopyListTest, ListsFolders) {
  const auto all = List({}, {"."});
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_THAT(Paths(**all), ElementsAre("a.out", "bin", "bin/tool"));
  const auto other = List({"a.out"}, {"../elsewhere/", "bin"});
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_THAT(Paths(**other), ElementsAre("a.out", "bin", "bin/tool", "elsewhere", "elsewhere/data",
                                          "elsewhere/deep", "elsewhere/deep/x"));
}

TEST_F(CopyListTest, KeyDependsOnContentNameAndMode) {
  const std::string key = (*List({"a.out"}))->key;
  EXPECT_EQ(key.size(), 64u);
  fs::last_write_time(here_ + "/a.out", fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ((*List({"a.out"}))->key, key);
  ::chmod((here_ + "/a.out").c_str(), 0700);
  const std::string with_mode = (*List({"a.out"}))->key;
  EXPECT_NE(with_mode, key);
  Write("here/a.out", "aab");
  EXPECT_NE((*List({"a.out"}))->key, with_mode);
}

TEST_F(CopyListTest, KeepsLinksWithinFolder) {
  fs::create_symlink("bin/tool", here_ + "/inside");
  fs::create_symlink("nothing", here_ + "/bin/dangles");
  fs::create_symlink("..", here_ + "/bin/up");
  const auto list = List({}, {"."});
  ASSERT_TRUE(list.ok()) << list.error().message;
  EXPECT_THAT(Paths(**list),
              ElementsAre("a.out", "bin", "bin/dangles", "bin/tool", "bin/up", "inside"));
  EXPECT_EQ((*list)->entries.back().target(), "bin/tool");
  const auto named = List({"inside"});  // a link that the user names is followed
  ASSERT_TRUE(named.ok());
  EXPECT_EQ((*named)->entries.back().kind(), pb::CopyEntry::FILE);
  EXPECT_EQ((*named)->entries.back().size(), 4u);
}

TEST_F(CopyListTest, RefusesLinksThatLeaveFolder) {
  fs::create_symlink("../elsewhere/data", here_ + "/out");
  ExpectRefused({}, {"."}, "here/out': this link leads out of the folder");
  fs::remove(here_ + "/out");
  fs::create_symlink(here_ + "/a.out", here_ + "/absolute");
  ExpectRefused({}, {"."}, "absolute");
  fs::remove(here_ + "/absolute");
  // The text of the link stays inside the folder, but its path leads outside through another link.
  fs::create_symlink("../here", here_ + "/bin/back");
  fs::create_symlink("bin/..", here_ + "/self");
  fs::create_symlink("self/../elsewhere", here_ + "/bin/sly");
  fs::remove(here_ + "/bin/back");
  fs::create_symlink("../self/../elsewhere/data", here_ + "/bin/slyer");
  ExpectRefused({}, {"."}, "slyer");
}

TEST_F(CopyListTest, NamesFileThatCannotBeCopied) {
  ExpectRefused({"none"}, {}, "--copy 'none': No such file");
  ExpectRefused({"bin"}, {}, "--copy_dir copies folders");
  ExpectRefused({}, {"a.out"}, "--copy copies files");
  ExpectRefused({}, {"/"}, "whole machine");
  ::mkfifo((here_ + "/pipe").c_str(), 0600);
  ExpectRefused({"pipe"}, {}, "no regular file");
  ExpectRefused({}, {"."}, "pipe': it is a socket, pipe or device");
  Write("elsewhere/a.out", "b");
  fs::remove(here_ + "/pipe");
  ExpectRefused({"a.out", "../elsewhere/a.out"}, {}, "the same name");
  if (::geteuid() != 0) {
    ::chmod((here_ + "/a.out").c_str(), 0);
    ExpectRefused({"a.out"}, {}, "cannot read");
  }
}

TEST(SizeTextTest, FormatsBytesInDecimalUnits) {
  EXPECT_EQ(SizeText(0), "0 bytes");
  EXPECT_EQ(SizeText(1), "1 byte");
  EXPECT_EQ(SizeText(999), "999 bytes");
  EXPECT_EQ(SizeText(1000), "1.0 kB");
  EXPECT_EQ(SizeText(12'345'678), "12.3 MB");
  EXPECT_EQ(SizeText(999'960'000), "1.0 GB");
}

}  // namespace
}  // namespace dslaunch::copy_list_test
