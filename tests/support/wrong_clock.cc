// Shifts the clock of an agent that is linked with --wrap=clock_gettime: its wall clock is
// WRONG_CLOCK_S seconds ahead.
#include <time.h>

#include <cstdlib>

extern "C" {

int __real_clock_gettime(clockid_t clock, timespec* time);

int __wrap_clock_gettime(clockid_t clock, timespec* time) {
  const int result = __real_clock_gettime(clock, time);
  const char* const ahead = std::getenv("WRONG_CLOCK_S");
  if (result == 0 && clock == CLOCK_REALTIME && ahead != nullptr) time->tv_sec += std::atol(ahead);
  return result;
}

}  // extern "C"
