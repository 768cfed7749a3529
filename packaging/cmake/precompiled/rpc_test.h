// Precompiled for tests of what sees gRPC and Asio.
#include "packaging/cmake/precompiled/rpc.h"
#include "packaging/cmake/precompiled/test.h"
