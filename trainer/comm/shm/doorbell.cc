#include "trainer/comm/shm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace dslaunch {
namespace {

// Calls futex(). The other side is another process, so FUTEX_PRIVATE_FLAG is not set.
long Futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  static_assert(sizeof word == sizeof(uint32_t));
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

// Rings the bell. No ring is missed, because both atomic accesses are sequentially consistent:
// either this thread reads sleeps_ as nonzero, or the kernel finds rings_ changed before it
// suspends the sleeper.
void Doorbell::Ring() {
  rings_.fetch_add(1);
  if (sleeps_.load() != 0) Futex(rings_, FUTEX_WAKE, 1, nullptr);
}

bool Doorbell::Sleep(uint32_t rings, std::chrono::milliseconds timeout) {
  const timespec duration = {timeout.count() / 1000, timeout.count() % 1000 * 1'000'000};
  sleeps_.store(1);
  Futex(rings_, FUTEX_WAIT, rings, &duration);
  sleeps_.store(0);
  return rings_.load() != rings;
}

}  // namespace dslaunch
