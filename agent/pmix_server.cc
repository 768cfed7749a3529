#include "agent/pmix_server.h"

#ifdef DSLAUNCH_PMIX_SERVER
asm(".pushsection .rodata\n"
    "dslaunch_pmix_server:\n"
    ".incbin \"" DSLAUNCH_PMIX_SERVER
    "\"\n"
    "dslaunch_pmix_server_end:\n"
    ".popsection\n");

extern "C" const char dslaunch_pmix_server[];
extern "C" const char dslaunch_pmix_server_end[];

namespace dslaunch {
std::string_view PmixServer() { return {dslaunch_pmix_server, dslaunch_pmix_server_end}; }
}  // namespace dslaunch
#else
namespace dslaunch {
std::string_view PmixServer() { return {}; }
}  // namespace dslaunch
#endif
