// Precompiled for tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "packaging/cmake/precompiled/std.h"
