#include "cli/options/doctor_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::doctor_command_test {
namespace {

using ::testing::HasSubstr;

DoctorCommand Parsed(std::vector<std::string> words) {
  words.insert(words.begin(), "doctor");
  Result<DoctorCommand> command = ParseDoctorCommand(words);
  EXPECT_TRUE(command.ok()) << command.error().message;
  return command.ok() ? *std::move(command) : DoctorCommand();
}

std::string Refused(std::vector<std::string> words) {
  words.insert(words.begin(), "doctor");
  const Result<DoctorCommand> command = ParseDoctorCommand(words);
  if (command.ok()) return "";
  EXPECT_EQ(command.error().code, ExitCode::kUsage);
  return command.error().message;
}

TEST(DoctorCommandTest, ReadsLaunchOptionsInBothSpellings) {
  EXPECT_EQ(Parsed({}).launch.hostfile, std::nullopt);
  const DoctorCommand command = Parsed(
      {"-H", "hosts", "--num-gpus", "3", "--connect_timeout", "5", "--device=cpu", "--json"});
  EXPECT_EQ(command.launch.hostfile, "hosts");
  EXPECT_EQ(command.launch.num_gpus, 3);
  EXPECT_EQ(command.launch.connect_timeout_ms, 5000);
  EXPECT_EQ(command.launch.device, DeviceChoice::kCpu);
  EXPECT_TRUE(command.launch.json);
  EXPECT_FALSE(command.trains);
}

TEST(DoctorCommandTest, ReadsBenchAndHealthCommand) {
  EXPECT_TRUE(Parsed({"--bench"}).launch.preflight);
  EXPECT_TRUE(Parsed({"--preflight", "train"}).launch.preflight);
  EXPECT_FALSE(Parsed({}).launch.preflight);
  const DoctorCommand command = Parsed({"--health_command", "/opt/check --all 3"});
  EXPECT_TRUE(command.launch.preflight);
  EXPECT_THAT(command.launch.health_command, ::testing::ElementsAre("/opt/check", "--all", "3"));
  EXPECT_THAT(Refused({"--health_command", "sh -c 'exit 0'"}), HasSubstr("--health_command"));
}

TEST(DoctorCommandTest, TrainRequiresTheTrainer) {
  EXPECT_TRUE(Parsed({"-H", "hosts", "train"}).trains);
  EXPECT_TRUE(Parsed({"train", "mine.yaml", "--steps", "3"}).trains);
}

TEST(DoctorCommandTest, PrintsItsOwnHelp) {
  EXPECT_THAT(Parsed({"--help"}).help, HasSubstr("dslaunch doctor"));
  EXPECT_THAT(Parsed({"-H", "x", "-h"}).help, HasSubstr("copy agent"));
}

TEST(DoctorCommandTest, ReadsProgramWithItsArguments) {
  const DoctorCommand command = Parsed({"-H", "hosts", "script.py", "--lr", "1"});
  EXPECT_TRUE(command.has_program);
  EXPECT_FALSE(command.trains);
  EXPECT_THAT(command.launch.program, ::testing::ElementsAre("script.py", "--lr", "1"));
  EXPECT_FALSE(Parsed({"-H", "hosts"}).has_program);
  EXPECT_FALSE(Parsed({"train"}).has_program);
  EXPECT_TRUE(Parsed({"bench", "comm"}).trains);
}

TEST(DoctorCommandTest, RejectsOtherCommandsAndMistypedOptions) {
  EXPECT_THAT(Refused({"-H", "hosts", "ps"}), HasSubstr("ps"));
  EXPECT_THAT(Refused({"--hostfiel", "x"}), HasSubstr("--hostfile"));
  EXPECT_THAT(Refused({"--num_nodes", "0"}), HasSubstr("--num_nodes"));
}

TEST(DoctorCommandTest, DoctorAsFirstWordSelectsMode) {
  const char* const argv[] = {"dslaunch", "doctor", "-H", "hosts"};
  const Result<LaunchOptions> options = ParseOptions(4, argv);
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->mode, LaunchOptions::Mode::kDoctor);
  EXPECT_THAT(options->program, ::testing::ElementsAre("doctor", "-H", "hosts"));
}

}  // namespace
}  // namespace dslaunch::doctor_command_test
