// Declares the expectation that a call throws a TrainError, the trainer's exception for refused
// input.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "trainer/base/train_error.h"

namespace dslaunch {

// Fails the test unless `action` throws a TrainError with this code and message.
inline void ExpectRefused(const std::function<void()>& action, ExitCode code,
                          const testing::Matcher<std::string>& message) {
  try {
    action();
    ADD_FAILURE() << "accepted";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(std::string(error.what()), message);
  }
}

}  // namespace dslaunch
