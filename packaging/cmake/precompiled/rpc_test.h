// Includes the headers of tests of files that include gRPC and Asio, to precompile them.
#include "packaging/cmake/precompiled/rpc.h"
#include "packaging/cmake/precompiled/test.h"
