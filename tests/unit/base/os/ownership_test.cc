#include "base/os/ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch::ownership_test {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kStranger = 54'321;

class OwnershipTest : public ::testing::Test {
 protected:
  std::string Folder(const std::string& name, mode_t mode = 0755) const {
    const std::string path = dir_ / name;
    std::filesystem::create_directories(path);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  // Gives the file to another user. Returns false if this process is not permitted to.
  static bool ChangeOwner(const std::string& path) {
    return ::lchown(path.c_str(), kStranger, kStranger) == 0;
  }
  static std::string Refusal(const std::string& path, IfMissing if_missing = IfMissing::kFail,
                             uid_t user = ::geteuid()) {
    const Result<UniqueFd> opened = OpenOwnFolder(path, user, if_missing);
    return opened.ok() ? "" : opened.error().message;
  }
  std::string RefusalIn(const std::string& base, const std::string& below,
                        IfMissing if_missing = IfMissing::kFail) const {
    const Result<UniqueFd> opened = OpenOwnFolderIn(base, below, ::geteuid(), if_missing);
    return opened.ok() ? "" : opened.error().message;
  }
  static std::string FileRefusal(const std::string& path) {
    const Result<UniqueFd> opened = OpenTrustedFile(path, ::geteuid());
    return opened.ok() ? "" : opened.error().message;
  }

  TempDir dir_;
};

TEST_F(OwnershipTest, CreatesMissingFoldersPrivate) {
  const std::string path = dir_ / "a/b/c";
  const Result<UniqueFd> missing = OpenOwnFolder(path, ::geteuid(), IfMissing::kFail);
  ASSERT_TRUE(missing.ok());
  EXPECT_FALSE(missing->valid());
  EXPECT_FALSE(std::filesystem::exists(dir_ / "a"));
  const Result<UniqueFd> made = OpenOwnFolder(path, ::geteuid(), IfMissing::kMake);
  ASSERT_TRUE(made.ok()) << made.error().message;
  struct stat by_path {
  }, by_fd{};
  ASSERT_EQ(::stat(path.c_str(), &by_path), 0);
  ASSERT_EQ(::fstat(made->get(), &by_fd), 0);
  EXPECT_EQ(by_path.st_ino, by_fd.st_ino);
  EXPECT_EQ(by_path.st_mode & 0777, 0700u);
  EXPECT_EQ(Refusal(dir_ / "a/./b//c/../c/"), "");
}

TEST_F(OwnershipTest, RefusesPathThroughFolderWritableByOthers) {
  Folder("wide/below");
  Folder("wide", 0777);
  EXPECT_THAT(Refusal(dir_ / "wide/below"),
              HasSubstr("/wide may be changed by others; chmod go-w"));
  Folder("wide", 0775);
  if (::chown((dir_ / "wide").c_str(), static_cast<uid_t>(-1), kStranger) == 0) {
    EXPECT_THAT(Refusal(dir_ / "wide/below"), HasSubstr("/wide may be changed by others"));
  }
  Folder("wide", 01777);
  EXPECT_EQ(Refusal(dir_ / "wide/below"), "") << "nobody can replace what is in a folder like /tmp";
  EXPECT_THAT(Refusal(dir_ / "wide"), HasSubstr("may be changed by others")) << "but add to it";
  EXPECT_EQ(Refusal(dir_ / "wide/new", IfMissing::kMake), "");
}

TEST_F(OwnershipTest, RefusesFolderOfAnotherUser) {
  Folder("state/jobs", 0700);
  EXPECT_THAT(Refusal(dir_ / "state/jobs", IfMissing::kFail, kStranger),
              HasSubstr("is another user's"));
  if (!ChangeOwner(dir_ / "state")) GTEST_SKIP() << "needs root";
  EXPECT_THAT(Refusal(dir_ / "state/jobs"), HasSubstr("/state is another user's, uid 54321"));
  EXPECT_THAT(Refusal(dir_ / "state/new", IfMissing::kMake), HasSubstr("is another user's"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "state/new"));
}

TEST_F(OwnershipTest, FollowsOwnLinksAndChecksTheirTargets) {
  Folder("real/jobs", 0700);
  std::filesystem::create_directory_symlink(dir_ / "real", dir_ / "absolute");
  std::filesystem::create_directory_symlink("real/../real", dir_ / "relative");
  std::filesystem::create_directory_symlink("loop", dir_ / "loop");
  std::filesystem::create_directory_symlink("later", dir_ / "dangling");
  EXPECT_EQ(Refusal(dir_ / "absolute/jobs"), "");
  EXPECT_EQ(Refusal(dir_ / "relative/jobs"), "");
  EXPECT_EQ(Refusal(dir_ / "relative"), "");
  EXPECT_THAT(Refusal(dir_ / "loop/jobs"), HasSubstr("cannot be opened"));
  EXPECT_EQ(Refusal(dir_ / "dangling/jobs", IfMissing::kMake), "");
  EXPECT_TRUE(std::filesystem::exists(dir_ / "later/jobs"));
  Folder("real", 0777);
  EXPECT_THAT(Refusal(dir_ / "absolute/jobs"), HasSubstr("/real may be changed by others"));
}

TEST_F(OwnershipTest, RefusesLinkOfAnotherUser) {
  Folder("real/jobs", 0700);
  Folder("tmp", 01777);
  std::filesystem::create_directory_symlink(dir_ / "real", dir_ / "tmp/link");
  EXPECT_EQ(Refusal(dir_ / "tmp/link/jobs"), "");
  if (!ChangeOwner(dir_ / "tmp/link")) GTEST_SKIP() << "needs root";
  EXPECT_THAT(Refusal(dir_ / "tmp/link/jobs"), HasSubstr("/tmp/link is a link of another user"));
}

TEST_F(OwnershipTest, AllowsSharedBaseButChecksFoldersBelow) {
  const std::string base = Folder("shared", 0777);
  EXPECT_EQ(RefusalIn(base, "job/nodes", IfMissing::kMake), "");
  EXPECT_EQ(RefusalIn(base, "job/nodes"), "");
  EXPECT_EQ(RefusalIn(dir_ / "new/base", "job", IfMissing::kMake), "");
  EXPECT_FALSE(OpenOwnFolderIn(base, "none", ::geteuid(), IfMissing::kFail)->valid());
  EXPECT_FALSE(OpenOwnFolderIn(dir_ / "none", "job", ::geteuid(), IfMissing::kFail)->valid());
  Folder("shared/job", 01777);
  EXPECT_THAT(RefusalIn(base, "job/nodes"), HasSubstr("/shared/job may be changed by others"));
  std::filesystem::create_directory_symlink(Folder("real"), base + "/link");
  EXPECT_THAT(RefusalIn(base, "link", IfMissing::kMake), HasSubstr("/shared/link is a link"));
  Folder("shared/planted", 0700);
  if (!ChangeOwner(base + "/planted")) GTEST_SKIP() << "needs root";
  EXPECT_THAT(RefusalIn(base, "planted"), HasSubstr("/shared/planted is another user's"));
}

TEST_F(OwnershipTest, ReadsFileOnlyIfOthersCannotWriteIt) {
  dir_.Write("file", "text");
  ASSERT_EQ(::chmod((dir_ / "file").c_str(), 0644), 0);
  const Result<UniqueFd> folder = OpenOwnFolder(dir_.path(), ::geteuid(), IfMissing::kFail);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  const auto open = [&](const std::string& name) {
    return OpenOwnFile(*folder, name, dir_ / name, ::geteuid());
  };
  const Result<UniqueFd> file = open("file");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*ReadAll(*file, "file", 4), "text");
  EXPECT_FALSE(open("none")->valid());
  EXPECT_THAT(ReadAll(*open("file"), "file", 3).error().message,
              HasSubstr("file is larger than 3 bytes"));
  std::filesystem::create_symlink("file", dir_ / "link");
  EXPECT_THAT(open("link").error().message, HasSubstr("/link cannot be opened"));
  ASSERT_EQ(::mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(open("fifo").error().message, HasSubstr("is not a regular file"));
  ASSERT_EQ(::chmod((dir_ / "file").c_str(), 0646), 0);
  EXPECT_THAT(open("file").error().message,
              HasSubstr("/file may be changed by others (mode 0646)"));
  ASSERT_EQ(::chmod((dir_ / "file").c_str(), 0600), 0);
  if (!ChangeOwner(dir_ / "file")) GTEST_SKIP() << "needs root";
  EXPECT_THAT(open("file").error().message, HasSubstr("/file belongs to another user, uid 54321"));
}

TEST_F(OwnershipTest, TrustsOnlyOwnOrRootsConfigurationFiles) {
  const std::string path = dir_.Write("dslaunch.yaml", "launch:\n");
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(FileRefusal(path), "");
  std::filesystem::create_symlink(path, dir_ / "link");
  EXPECT_EQ(FileRefusal(dir_ / "link"), "");
  EXPECT_EQ(FileRefusal("/etc/passwd"), "") << "root's files are trusted";
  EXPECT_THAT(FileRefusal(dir_ / "none"), HasSubstr("cannot be read"));
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_THAT(FileRefusal(path), HasSubstr(path + " may be changed by others (mode 0666)"));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  if (!ChangeOwner(dir_ / "link")) GTEST_SKIP() << "needs root";
  EXPECT_THAT(FileRefusal(dir_ / "link"), HasSubstr("is a link of another user"));
  ASSERT_TRUE(ChangeOwner(path));
  EXPECT_THAT(FileRefusal(path), HasSubstr("belongs to another user, uid 54321"));
  EXPECT_EQ(OpenTrustedFile(path, ::geteuid()).error().code, ExitCode::kBadInput);
}

}  // namespace
}  // namespace dslaunch::ownership_test
