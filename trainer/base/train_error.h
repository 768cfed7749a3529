// The trainer's own exception, thrown anywhere and caught once, in main, with the codes that it
// carries.
#pragma once

#include "base/exit_code.h"  // IWYU pragma: export
#include "dslaunch/error.h"  // IWYU pragma: export
