// Precompiled for tests of the trainer.
#include "packaging/cmake/precompiled/test.h"
#include "trainer/torch_pch.h"
