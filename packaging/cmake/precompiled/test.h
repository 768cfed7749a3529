// Includes the headers of tests that include neither gRPC nor LibTorch, to precompile them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "packaging/cmake/precompiled/std.h"
