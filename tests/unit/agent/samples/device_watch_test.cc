#include "agent/samples/device_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "base/os/process_tree.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::device_watch_test {
namespace {

constexpr milliseconds kEvery(20);
constexpr milliseconds kPatience(20'000);

class DeviceWatchTest : public ::testing::Test {
 protected:
  ~DeviceWatchTest() override {
    EXPECT_TRUE(AllChildrenEnd());
    for (const char* name : {"GPUS", "ERROR", "STATES", "OLD"})
      ::unsetenv((std::string("FAKE_NVIDIA_") + name).c_str());
  }
  static void Fake(const char* name, const std::string& value) {
    ::setenv((std::string("FAKE_NVIDIA_") + name).c_str(), value.c_str(), 1);
  }
  // Calls Turn until `done` returns true. Returns false on timeout.
  template <class Done>
  bool TurnUntil(Done done) {
    const Deadline deadline = Deadline::After(kPatience);
    while (!done() && !deadline.Expired()) {
      watch_.Turn(kEvery, Clock::now());
      loop_.restart();
      loop_.run_for(milliseconds(10));
    }
    return done();
  }
  size_t Devices() const { return watch_.Devices(Clock::now()).size(); }
  // Returns whether all children of this test end in time.
  bool AllChildrenEnd() {
    const Deadline deadline = Deadline::After(kPatience);
    while (!OwnChildren().empty() && !deadline.Expired()) watch_.Stop();
    return OwnChildren().empty();
  }

  asio::io_context loop_;
  std::string program_ = DSLAUNCH_FAKE_NVIDIA_SMI;
  DeviceWatch watch_{loop_, [this] { return program_; }};
};

TEST_F(DeviceWatchTest, ReadsStatesOfAllDevices) {
  Fake("GPUS", "3");
  ASSERT_TRUE(TurnUntil([&] { return Devices() == 3; }));
  const auto devices = watch_.Devices(Clock::now());
  EXPECT_EQ(devices[2].uuid(), "GPU-3");
  EXPECT_DOUBLE_EQ(devices[2].power_w(), 402.5);
  EXPECT_LT(devices[2].age_ms(), 10'000u);
  EXPECT_EQ(watch_.trouble(), "");
}

TEST_F(DeviceWatchTest, UpdatesStatesByOneProcess) {
  const TempDir dir;
  const auto state = [&](const char* watts) {
    dir.Write("states", std::string("0, GPU-1, ") + watts +
                            ", 700, 61, 99, 81920, 1, 1980, 0, 0, 0x0, NVIDIA Fake\n");
  };
  state("400");
  Fake("STATES", dir / "states");
  ASSERT_TRUE(TurnUntil([&] { return Devices() == 1; }));
  const std::vector<pid_t> before = OwnChildren();
  state("80");
  EXPECT_TRUE(TurnUntil([&] {
    const auto devices = watch_.Devices(Clock::now());
    return devices.size() == 1 && devices[0].power_w() == 80;
  }));
  ASSERT_EQ(before.size(), 1u);
  ASSERT_EQ(OwnChildren().size(), 1u);
  EXPECT_EQ(OwnChildren()[0], before[0]);
}

TEST_F(DeviceWatchTest, QueriesLessOfOldDriver) {
  Fake("OLD", "1");
  ASSERT_TRUE(TurnUntil([&] { return Devices() == 1; }));
  EXPECT_FALSE(watch_.Devices(Clock::now())[0].has_throttle_reasons());
  EXPECT_EQ(watch_.Devices(Clock::now())[0].name(), "NVIDIA Fake");
}

TEST_F(DeviceWatchTest, ReportsErrorOfDriver) {
  Fake("ERROR", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.");
  ASSERT_TRUE(TurnUntil([&] { return !watch_.trouble().empty(); }));
  EXPECT_EQ(watch_.trouble(),
            "nvidia-smi: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
            "driver.");
  EXPECT_EQ(Devices(), 0u);
}

TEST_F(DeviceWatchTest, ReportsSilentDriver) {
  const TempDir dir;
  dir.Write("states", "");
  Fake("STATES", dir / "states");
  watch_.Turn(kEvery, Clock::now());
  watch_.Turn(kEvery, Clock::now() + milliseconds(14'000));
  EXPECT_EQ(watch_.trouble(), "");
  watch_.Turn(kEvery, Clock::now() + milliseconds(16'000));
  EXPECT_EQ(watch_.trouble(), "nvidia-smi: the driver does not answer");
}

TEST_F(DeviceWatchTest, StopEndsProgram) {
  ASSERT_TRUE(TurnUntil([&] { return Devices() == 1; }));
  ASSERT_EQ(OwnChildren().size(), 1u);
  watch_.Stop();
  EXPECT_EQ(Devices(), 0u);
  EXPECT_TRUE(AllChildrenEnd());
}

TEST_F(DeviceWatchTest, ReportsNothingWithoutProgram) {
  program_ = "";
  watch_.Turn(kEvery, Clock::now());
  EXPECT_EQ(Devices(), 0u);
  EXPECT_EQ(watch_.trouble(), "");
}

}  // namespace
}  // namespace dslaunch::device_watch_test
