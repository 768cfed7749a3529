#include "agent/probe/processor_speed.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "agent/probe/starvation.h"

namespace dslaunch {
namespace {

constexpr size_t kSide = 64;
constexpr int kProductsPerSlice = 8;
constexpr double kFlopsPerSlice = 2.0 * kSide * kSide * kSide * kProductsPerSlice;
constexpr size_t kCopyBytes = 16 << 20;

using Matrix = std::array<float, kSide * kSide>;
using FloatSeconds = std::chrono::duration<double>;

void MultiplyInto(const Matrix& a, const Matrix& b, Matrix& c) {
  for (size_t i = 0; i < kSide; ++i) {
    for (size_t k = 0; k < kSide; ++k) {
      const float factor = a[i * kSide + k];
      for (size_t j = 0; j < kSide; ++j) c[i * kSide + j] += factor * b[k * kSide + j];
    }
  }
}

double ThreadSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct ThreadSpeed {
  double best_slice_s = 1e9;
  double busy_s = 0;
  double elapsed_s = 0;
};

ThreadSpeed Multiply(milliseconds duration) {
  Matrix a, b, c;
  a.fill(0.5f);
  b.fill(0.25f);
  c.fill(0.0f);
  ThreadSpeed speed;
  const double busy_before = ThreadSeconds();
  const Clock::time_point begin = Clock::now();
  Clock::time_point slice = begin;
  while (slice - begin < duration) {
    for (int i = 0; i < kProductsPerSlice; ++i) MultiplyInto(a, b, c);
    a[0] = std::min(c[0], 1.0f);  // keeps the compiler from removing the products
    const Clock::time_point now = Clock::now();
    speed.best_slice_s = std::min(speed.best_slice_s, FloatSeconds(now - slice).count());
    slice = now;
  }
  speed.busy_s = ThreadSeconds() - busy_before;
  speed.elapsed_s = FloatSeconds(slice - begin).count();
  return speed;
}

}  // namespace

ProcessorSpeed MeasureProcessor(int threads, milliseconds duration) {
  std::vector<ThreadSpeed> speeds(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (ThreadSpeed& speed : speeds)
    running.emplace_back([&speed, duration] { speed = Multiply(duration); });
  for (std::thread& thread : running) thread.join();
  double slowest_s = 0, busy_s = 0, elapsed_s = 0;
  for (const ThreadSpeed& speed : speeds) {
    slowest_s = std::max(slowest_s, speed.best_slice_s);
    busy_s += speed.busy_s;
    elapsed_s += speed.elapsed_s;
  }
  ProcessorSpeed result;
  result.core_flops = static_cast<uint64_t>(kFlopsPerSlice / std::max(slowest_s, 1e-9));
  result.cpu_share_permille =
      static_cast<uint32_t>(1000 * std::clamp(busy_s / std::max(elapsed_s, 1e-9), 0.0, 1.0));
  return result;
}

MemorySpeed MeasureMemory(milliseconds duration) {
  void* const memory =
      ::mmap(nullptr, 2 * kCopyBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  auto* const from = static_cast<std::byte*>(memory);
  std::byte* const to = from + kCopyBytes;
  std::memset(from, 1, 2 * kCopyBytes);
  double best_s = 1e9;
  const StarvationMeter starvation;
  const Clock::time_point begin = Clock::now();
  Clock::time_point pass = begin;
  size_t turn = 0;
  while (pass - begin < duration) {
    from[turn++ % kCopyBytes] = std::byte{2};  // keeps the compiler from removing the copies
    std::memcpy(to, from, kCopyBytes);
    const Clock::time_point now = Clock::now();
    best_s = std::min(best_s, FloatSeconds(now - pass).count());
    pass = now;
  }
  ::munmap(memory, 2 * kCopyBytes);
  return {static_cast<uint64_t>(static_cast<double>(kCopyBytes) / best_s), starvation.Permille()};
}

}  // namespace dslaunch
