// Used by tests/bench/checkpoint. Saves or loads one checkpoint of float32 tensors with the
// trainer's classes, in one process per rank, and prints the seconds that this took.
//   save FOLDER MIB RANKS   each rank writes its part, and rank 0 commits
//   load FOLDER MIB RANKS   each rank checks the checkpoint and reads all of it
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/safetensors.h"

namespace {

using namespace dslaunch;
using Clock = std::chrono::steady_clock;

constexpr int kMaxRanks = 16;
constexpr size_t kTensorElements = 1 << 20;
constexpr std::chrono::minutes kTimeout{5};

// Memory that the ranks share; initially zero.
struct Shared {
  std::atomic<int> arrived;
  FileSum sums[kMaxRanks];
};

// Returns once all ranks have called Barrier equally often. `times`: this rank's number of calls.
void Barrier(Shared& shared, int ranks, int& times) {
  const int all = ranks * ++times;
  ++shared.arrived;
  const auto deadline = Clock::now() + kTimeout;
  while (shared.arrived < all) {
    if (Clock::now() > deadline) throw TrainError(ExitCode::kTimedOut, "a rank did not arrive");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

std::string NameOf(size_t tensor) { return "layer." + std::to_string(tensor) + ".weight"; }

std::vector<std::vector<float>> MakeTensors(size_t mib) {
  std::vector<std::vector<float>> tensors(mib * (1 << 20) / (kTensorElements * sizeof(float)));
  unsigned value = 1;
  for (auto& tensor : tensors) {
    tensor.resize(kTensorElements);
    for (float& number : tensor) number = static_cast<float>(value = value * 1664525 + 1013904223);
  }
  return tensors;
}

double Save(const std::string& path, const std::vector<std::vector<float>>& tensors, int rank,
            int ranks, Shared& shared, int& times) {
  const auto file = [](int of) { return "model-" + std::to_string(of) + ".safetensors"; };
  const auto share = [&](size_t tensor) { return static_cast<int>(tensor) % ranks; };
  CheckpointFolder folder(path);
  const std::string begun = folder.BegunPath(TagOf(1), "bench");
  if (rank == 0) {
    folder.Make();
    folder.RemoveLeftovers();
    folder.Begin(begun);
  }
  std::vector<TensorBytes> own;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (share(i) != rank) continue;
    own.push_back({NameOf(i), "F32", {static_cast<int64_t>(kTensorElements)}, tensors[i].data()});
  }
  Barrier(shared, ranks, times);
  const auto start = Clock::now();
  shared.sums[rank] = WriteSafetensors(begun + "/" + file(rank), own);
  Barrier(shared, ranks, times);
  if (rank == 0) {
    Manifest manifest;
    manifest.run_id = manifest.job_id = "bench";
    manifest.world_size = ranks;
    for (int of = 0; of < ranks; ++of) manifest.files.push_back({file(of), shared.sums[of]});
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto elements = static_cast<int64_t>(kTensorElements);
      manifest.tensors.push_back(
          {NameOf(i), "F32", {elements}, {{Shard::Whole(elements), file(share(i))}}});
    }
    const std::string run_id = manifest.run_id;
    folder.Commit(begun, TagOf(1), std::move(manifest));
    folder.Settle(TagOf(1), run_id, 1);
  }
  Barrier(shared, ranks, times);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Load(const std::string& path, std::vector<std::vector<float>>& tensors, int ranks,
            Shared& shared, int& times) {
  Barrier(shared, ranks, times);
  const auto start = Clock::now();
  const ResumeDecision decision = CheckpointFolder(path).Choose({});
  if (!decision.checkpoint) throw TrainError(ExitCode::kBadInput, decision.reason);
  for (const FileRecord& record : decision.checkpoint->manifest.files) {
    const SafetensorsFile file(decision.checkpoint->folder + "/" + record.name);
    for (const auto& [name, tensor] : file.tensors()) {
      file.Read(tensor, tensors[std::stoul(name.substr(6))].data());
    }
  }
  Barrier(shared, ranks, times);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: dslaunch-bench-checkpoint save|load FOLDER MIB RANKS\n");
    return ToInt(ExitCode::kUsage);
  }
  const bool saves = argv[1] == std::string("save");
  const int ranks = std::min(std::atoi(argv[4]), kMaxRanks);
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (memory) Shared();
  int rank = 0;
  for (int other = 1; other < ranks && rank == 0; ++other) {
    if (fork() == 0) rank = other;
  }
  try {
    auto tensors = MakeTensors(static_cast<size_t>(std::atoll(argv[3])));
    int times = 0;
    const double seconds = saves ? Save(argv[2], tensors, rank, ranks, shared, times)
                                 : Load(argv[2], tensors, ranks, shared, times);
    if (rank == 0) std::printf("%.6f\n", seconds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return ToInt(ExitCode::kInternal);
  }
  int failed = 0;
  for (int status = 0; rank == 0 && wait(&status) > 0;) failed |= status;
  return failed == 0 ? 0 : ToInt(ExitCode::kInternal);
}
