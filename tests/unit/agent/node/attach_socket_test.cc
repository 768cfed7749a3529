#include "agent/node/attach_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch::attach_socket_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AttachSocketTest : public ::testing::Test {
 protected:
  std::string Folder(const std::string& name, mode_t mode) const {
    const std::string path = dir_ / name;
    std::filesystem::create_directories(path);
    ::chmod(path.c_str(), mode);
    return path;
  }
  static std::string Refusal(const std::string& folder) {
    const Result<void> checked = CheckSocketFolder(folder, ::geteuid());
    return checked.ok() ? "" : checked.error().message;
  }

  TempDir dir_;
  asio::io_context loop_;
};

TEST_F(AttachSocketTest, TriesRuntimeFoldersBeforeTmp) {
  EXPECT_THAT(SocketFolders("/x", 7),
              ElementsAre("/x/dslaunch", "/run/user/7/dslaunch", "/tmp/dslaunch-7"));
  EXPECT_THAT(SocketFolders("/run/user/7", 7),
              ElementsAre("/run/user/7/dslaunch", "/tmp/dslaunch-7"));
  EXPECT_THAT(SocketFolders(nullptr, 7), ElementsAre("/run/user/7/dslaunch", "/tmp/dslaunch-7"));
  EXPECT_THAT(SocketFolders("relative", 7), ElementsAre("/run/user/7/dslaunch", "/tmp/dslaunch-7"));
}

TEST_F(AttachSocketTest, MakesMissingFolderPrivate) {
  EXPECT_EQ(Refusal(dir_ / "new"), "");
  struct stat status {};
  ASSERT_EQ(::stat((dir_ / "new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(AttachSocketTest, RefusesFolderThatOthersCanEnterOrChange) {
  EXPECT_THAT(Refusal(Folder("open", 0755)), HasSubstr("is not private to this user"));
  Folder("shared", 0777);
  EXPECT_THAT(Refusal(dir_ / "shared/dslaunch"), HasSubstr("may be changed by others"));
  Folder("sticky", 01777);
  EXPECT_EQ(Refusal(dir_ / "sticky/dslaunch"), "") << "as /tmp is";
}

TEST_F(AttachSocketTest, FollowsLinksOnlyToPrivateFolders) {
  std::filesystem::create_directory_symlink(Folder("real", 0700), dir_ / "link");
  EXPECT_EQ(Refusal(dir_ / "link"), "") << "the link is the user's own";
  std::filesystem::create_directory_symlink(Folder("wide", 0755), dir_ / "other");
  EXPECT_THAT(Refusal(dir_ / "other"), HasSubstr("is not private to this user"));
  Folder("shared", 0777);
  std::filesystem::create_directory_symlink(Folder("shared/below", 0700), dir_ / "third");
  EXPECT_THAT(Refusal(dir_ / "third"), HasSubstr("may be changed by others"));
}

TEST_F(AttachSocketTest, ListensInFirstUsableFolderAndCleansUp) {
  int connections = 0;
  std::string path;
  {
    auto listening = AttachSocket::Listen(
        loop_, {Folder("open", 0755), dir_ / std::string(200, 'x'), dir_ / "good"}, "j.0.sock",
        [&](UniqueFd fd) { connections += fd.valid() ? 1 : 0; });
    ASSERT_TRUE(listening.ok()) << listening.error().message;
    path = (*listening)->path();
    EXPECT_EQ(path, dir_ / "good/j.0.sock");
    const std::vector<std::string> folders = {dir_ / "none", dir_ / "good"};
    const UniqueFd first = ConnectToSocket(folders, "j.0.sock");
    const UniqueFd second = ConnectToSocket(folders, "j.0.sock");
    EXPECT_TRUE(first.valid() && second.valid());
    EXPECT_FALSE(ConnectToSocket(folders, "j.1.sock").valid());
    loop_.run_for(std::chrono::milliseconds(100));
    EXPECT_EQ(connections, 2);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(ConnectToSocket({dir_ / "good"}, "j.0.sock").valid());
}

TEST_F(AttachSocketTest, ErrorNamesEveryRefusedFolderAndHint) {
  const auto listening =
      AttachSocket::Listen(loop_, {Folder("open", 0755), Folder("wide", 0750)}, "j.0.sock", {});
  ASSERT_FALSE(listening.ok());
  EXPECT_EQ(listening.error().code, ExitCode::kIo);
  for (const char* part : {"/open is not", "/wide is not", "leave out --detach"})
    EXPECT_THAT(listening.error().message, HasSubstr(part));
}

}  // namespace
}  // namespace dslaunch::attach_socket_test
