#include "tests/unit/trainer/cuda/gpu_on_host.h"

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

namespace dslaunch::gpu_on_host {

Index gridDim, blockIdx, threadIdx;

namespace {

constexpr size_t kStackBytes = size_t{64} << 10;

// A barrier for threads; it releases them when all members have arrived.
struct Barrier {
  int members = 0;  // number of threads that have not ended
  int arrived = 0;
  uint64_t passed = 0;  // number of times that all had arrived

  void Release() {
    arrived = 0;
    ++passed;
  }
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  Index index;
  bool has_ended = false;
  Barrier* awaited = nullptr;
  uint64_t until = 0;  // the fiber continues when awaited->passed has this value
};

// The running block. Its fibers are reused, because touching new stacks is the largest cost.
struct Block {
  Block(Index threads, const std::function<void()>& thread);
  void Restart(Index threads);
  void Run();
  void Await(Barrier& barrier);
  Barrier& WarpOf(size_t fiber) { return warps[fiber / kWarp]; }

  const std::function<void()>& thread;
  std::vector<Fiber> fibers;
  Barrier all;
  std::vector<Barrier> warps;
  // Values that each thread passed to its last two exchanges.
  std::vector<std::array<float, 2>> lanes;
  size_t running = 0;
  ucontext_t scheduler;
};

Block* block = nullptr;

void RunFiber() {
  block->thread();
  Fiber& fiber = block->fibers[block->running];
  fiber.has_ended = true;
  for (Barrier* const barrier : {&block->all, &block->WarpOf(block->running)}) {
    --barrier->members;
    if (barrier->members > 0 && barrier->arrived == barrier->members) barrier->Release();
  }
  swapcontext(&fiber.context, &block->scheduler);
}

Block::Block(Index threads, const std::function<void()>& body)
    : thread(body), fibers(threads.x * threads.y), lanes(fibers.size()) {}

void Block::Restart(Index threads) {
  all = {.members = static_cast<int>(fibers.size())};
  warps.assign((fibers.size() + kWarp - 1) / kWarp, {});
  for (size_t i = 0; i < fibers.size(); ++i) {
    ++WarpOf(i).members;
    Fiber& fiber = fibers[i];
    fiber.index = {static_cast<unsigned>(i % threads.x), static_cast<unsigned>(i / threads.x)};
    fiber.has_ended = false;
    fiber.awaited = nullptr;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    makecontext(&fiber.context, &RunFiber, 0);
  }
}

void Block::Run() {
  for (bool any_ran = true; any_ran;) {
    any_ran = false;
    for (size_t i = 0; i < fibers.size(); ++i) {
      Fiber& fiber = fibers[i];
      if (fiber.has_ended || (fiber.awaited != nullptr && fiber.awaited->passed != fiber.until)) {
        continue;
      }
      fiber.awaited = nullptr;
      any_ran = true;
      running = i;
      threadIdx = fiber.index;
      swapcontext(&scheduler, &fiber.context);
    }
  }
  if (all.members > 0) throw std::runtime_error("threads of a block wait at different calls");
}

void Block::Await(Barrier& barrier) {
  Fiber& fiber = fibers[running];
  const uint64_t until = barrier.passed + 1;
  if (++barrier.arrived == barrier.members) {
    barrier.Release();
    return;
  }
  fiber.awaited = &barrier;
  fiber.until = until;
  swapcontext(&fiber.context, &scheduler);
}

}  // namespace

void Run(Index blocks, Index threads, const std::function<void()>& thread) {
  gridDim = blocks;
  Block one(threads, thread);
  block = &one;
  for (blockIdx.y = 0; blockIdx.y < blocks.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < blocks.x; ++blockIdx.x) {
      one.Restart(threads);
      one.Run();
    }
  }
  block = nullptr;
}

void AwaitBlock() { block->Await(block->all); }

float ValueOfLane(float mine, unsigned lane) {
  const size_t self = block->running;
  Barrier& warp = block->WarpOf(self);
  // A lane that runs ahead writes the other of the two values and then waits for this lane, so this
  // value is not overwritten.
  const size_t exchange = warp.passed % 2;
  block->lanes[self][exchange] = mine;
  block->Await(warp);
  return block->lanes[self / kWarp * kWarp + lane][exchange];
}

}  // namespace dslaunch::gpu_on_host
