// Includes the headers of tests of files that include LibTorch, to precompile them.
#include "packaging/cmake/precompiled/test.h"
#include "packaging/cmake/precompiled/torch.h"
