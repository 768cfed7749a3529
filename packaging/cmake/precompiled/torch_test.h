// Precompiled for tests of files that include LibTorch.
#include "packaging/cmake/precompiled/test.h"
#include "packaging/cmake/precompiled/torch.h"
