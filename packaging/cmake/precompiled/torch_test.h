// Precompiled for tests of the trainer.
#include "packaging/cmake/precompiled/test.h"
#include "packaging/cmake/precompiled/torch.h"
