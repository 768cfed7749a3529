// Precompiled for tests of files that include gRPC and Asio.
#include "packaging/cmake/precompiled/rpc.h"
#include "packaging/cmake/precompiled/test.h"
