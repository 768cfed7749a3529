// Precompiled for tests that include neither gRPC nor LibTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "packaging/cmake/precompiled/std.h"
