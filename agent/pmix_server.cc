#include "agent/pmix_server.h"

#ifdef DSLAUNCH_HAS_PMIX_SERVER
// These symbols are defined in pmix_program.s: the first byte of the program, and its end.
extern "C" const char dslaunch_pmix_program[];
extern "C" const char dslaunch_pmix_program_end[];

namespace dslaunch {
std::string_view PmixServer() { return {dslaunch_pmix_program, dslaunch_pmix_program_end}; }
}  // namespace dslaunch
#else
namespace dslaunch {
std::string_view PmixServer() { return {}; }
}  // namespace dslaunch
#endif
