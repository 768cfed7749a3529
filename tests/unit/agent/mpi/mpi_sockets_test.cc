#include "agent/mpi/mpi_sockets.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "base/deadline.h"
#include "base/os/unix_socket.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::mpi_sockets_test {
namespace {

class MpiSocketsTest : public ::testing::Test {
 protected:
  void Open(bool with_pmix) {
    auto opened = MpiSockets::Open(loop_, dir_.path(), 2, {.is_open = with_pmix},
                                   [this](MpiProtocol protocol) { used_ = protocol; });
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    sockets_ = *std::move(opened);
  }
  // Connects to the PMI socket as a supervisor does before it starts a rank.
  UniqueFd ConnectPmi(uint32_t local_rank) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(ConnectUnix(fd.get(), *UnixAddress(sockets_->pmi_path(local_rank))), 0);
    return fd;
  }
  UniqueFd ConnectPmix() {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(sockets_->pmix_port()));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  void Run() {
    loop_.restart();
    loop_.run_for(milliseconds(50));
  }

  TempDir dir_;
  asio::io_context loop_{1};
  std::shared_ptr<MpiSockets> sockets_;
  std::optional<MpiProtocol> used_;
};

TEST_F(MpiSocketsTest, PmiIsUsedAtTheFirstByte) {
  Open(/*with_pmix=*/false);
  EXPECT_EQ(sockets_->pmix_port(), 0);
  const UniqueFd rank = ConnectPmi(1);
  Run();
  EXPECT_FALSE(used_);
  EXPECT_FALSE(std::filesystem::exists(sockets_->pmi_path(1)));
  EXPECT_EQ(::write(rank.get(), "cmd", 3), 3);
  Run();
  EXPECT_EQ(used_, MpiProtocol::kPmi);
}

TEST_F(MpiSocketsTest, PmixIsUsedByConnecting) {
  Open(/*with_pmix=*/true);
  Run();
  EXPECT_FALSE(used_);
  const UniqueFd rank = ConnectPmix();
  Run();
  EXPECT_EQ(used_, MpiProtocol::kPmix);
}

TEST_F(MpiSocketsTest, RankThatExitsUsesNothing) {
  Open(/*with_pmix=*/true);
  ConnectPmi(0);
  Run();
  EXPECT_FALSE(used_);
  const MpiSockets::Released released = sockets_->Release();
  EXPECT_FALSE(released.pmi[0].fd);
  EXPECT_TRUE(released.pmi[0].is_connected);
}

// The server must read bytes that were sent before its start, and accept ranks that start later.
TEST_F(MpiSocketsTest, HandsOverEarlyBytesAndListeners) {
  Open(/*with_pmix=*/true);
  const UniqueFd early = ConnectPmi(0);
  EXPECT_EQ(::write(early.get(), "cmd", 3), 3);
  Run();
  MpiSockets::Released released = sockets_->Release();
  ASSERT_TRUE(released.pmix_listener && released.pmi[0].fd && released.pmi[1].fd);
  EXPECT_TRUE(released.pmi[0].is_connected);
  char bytes[4] = {};
  EXPECT_EQ(::read(released.pmi[0].fd.get(), bytes, sizeof bytes), 3);
  EXPECT_STREQ(bytes, "cmd");
  EXPECT_FALSE(released.pmi[1].is_connected);
  const UniqueFd late = ConnectPmi(1);
  const UniqueFd accepted(::accept(released.pmi[1].fd.get(), nullptr, nullptr));
  EXPECT_TRUE(accepted.valid());
  Run();
}

TEST_F(MpiSocketsTest, RejectsFolderWithTooLongName) {
  const auto opened = MpiSockets::Open(loop_, "/tmp/" + std::string(200, 'x'), 1, {}, {});
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("TMPDIR"), std::string::npos);
}

}  // namespace
}  // namespace dslaunch::mpi_sockets_test
