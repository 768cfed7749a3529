// Runs a real sshd on the loopback interface with its own keys, configuration and home folder.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/transport/ssh/ssh_session.h"
#include "cli/transport/transport.h"
#include "tests/support/processes.h"

namespace dslaunch {

// Runs a program to its end. Returns its exit code, 128 + signal, or -1 if it could not start.
int RunProgram(const std::vector<std::string>& argv);

void WriteFile(const std::filesystem::path& path, const std::string& text);

// Base of tests with an sshd. Each test gets its own sshd and a fresh folder, which contains the
// home on the "node". Outside the folder only /run/sshd is touched, which sshd requires if it runs
// as root.
class SshdTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Starts sshd with the lines `extra_config` added to its configuration, and the NAME=VALUE words
  // `environment` added to the environment of the programs that it runs. The client gets its host
  // key.
  void StartSshd(const std::string& extra_config = "", const std::string& environment = "");
  void StopSshd();

  // Returns the client's target, an alias that ssh_config resolves.
  NodeTarget Target() const { return {"node1", "node1-alias", 0, ""}; }
  SshOptions Options() const { return {(folder_ / "ssh_config").string()}; }

  std::string HostKeyLine() const;  // "type base64" of sshd's public key
  std::string KnownHostsName() const { return "[127.0.0.1]:" + std::to_string(port_); }
  std::filesystem::path home() const { return folder_ / "home"; }
  std::filesystem::path known_hosts() const { return folder_ / "known_hosts"; }

  std::filesystem::path folder_;
  int port_ = 0;
  pid_t sshd_pid_ = -1;
};

// Returns a TCP port of the loopback interface on which no process listens at the moment.
int FreePort();

}  // namespace dslaunch
