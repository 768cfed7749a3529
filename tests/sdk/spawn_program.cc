// Runs the behaviour that its first argument selects, in a program built on the SDK.
// tests/sdk/ranks_test.py starts this program.
#include <dslaunch/dslaunch.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>

namespace {

using dslaunch::ProcessGroup;
using dslaunch::Spawn;

void Line(const std::string& text) { std::cout << text + "\n" << std::flush; }

// Starts a second thread.
void StartThread() {
  std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
}

void Sleep() { std::this_thread::sleep_for(std::chrono::hours(1)); }

// Returns a sum over ranks, to which every rank contributes its number + 1.
double SumOverRanks(const ProcessGroup& group) {
  at::Tensor sum = at::full({4}, group.rank() + 1.0);
  group.AllReduce(sum);
  return sum[0].item<double>();
}

void PrintSum(int rank) {
  ProcessGroup group = dslaunch::InitProcessGroup();
  const double sum = SumOverRanks(group);
  Line("rank " + std::to_string(rank) + " of " + std::to_string(group.world_size()) + ": sum " +
       std::to_string(static_cast<int>(sum)) + ", parent " + std::to_string(getppid()));
}

void Backward() { at::ones({2}).requires_grad_().sum().backward(); }

// The following functions are ways in which ranks started by the test leave their group.
ProcessGroup* kept = nullptr;

struct AtExit {
  ~AtExit() { delete kept; }
} at_exit;

int Caught() {
  try {
    ProcessGroup group = dslaunch::InitProcessGroup();
    SumOverRanks(group);
    if (group.rank() == 1) throw std::runtime_error("enough");
    group.Barrier();  // rank 1 does not arrive
  } catch (const std::exception& error) {
    Line(std::string("caught: ") + error.what());
    return 3;
  }
  return 0;
}

void Meet(bool at_static_destruction) {
  kept = new ProcessGroup(dslaunch::InitProcessGroup());
  SumOverRanks(*kept);
  if (!at_static_destruction) kept = nullptr;
}

// dslaunch::Main runs the following functions.
void BreakShapes() {
  ProcessGroup group = dslaunch::InitProcessGroup();
  if (group.rank() == 1) at::ones({2, 3}).matmul(at::ones({2, 3}));
  Sleep();
}

void RunUntilStopped() {
  ProcessGroup group = dslaunch::InitProcessGroup();
  dslaunch::Reporter reporter;
  int64_t step = 0;
  while (!dslaunch::StopRequested(group)) {
    reporter.Step({.step = ++step, .total_steps = 0, .loss = 0.5});
    if (step == 1) Line("runs");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  reporter.Evaluated(step, {{"accuracy", 0.25}});
  Line("saved after step " + std::to_string(step));
}

int Run(const std::string& what, int ranks, const char* file) {
  const std::map<std::string, std::function<void()>> actions = {
      {"forked", [&] { Spawn(ranks, PrintSum); }},
      {"anew",
       [&] {
         StartThread();
         Spawn(ranks, PrintSum);
       }},
      {"group_first",
       [&] {
         ProcessGroup group = dslaunch::InitProcessGroup();
         Spawn(ranks, PrintSum);
       }},
      {"twice",
       [&] {
         Spawn(ranks, [](int rank) { Line("first " + std::to_string(rank)); });
         StartThread();
         Spawn(ranks, [](int rank) { Line("second " + std::to_string(rank)); });
         Line("end");
       }},
      {"backward",
       [&] {
         Backward();
         Spawn(ranks, [](int) { Backward(); });
       }},
      {"throw",
       [&] {
         Spawn(ranks, [](int rank) {
           if (rank == 1) throw std::runtime_error("out of sorts");
           Sleep();
         });
       }},
      {"throw_anew",
       [&] {
         StartThread();
         Spawn(ranks, [](int rank) {
           if (rank == 1) throw std::runtime_error("out of sorts");
           Sleep();
         });
       }},
      {"kill",
       [&] {
         Spawn(ranks, [](int rank) {
           ProcessGroup group = dslaunch::InitProcessGroup();
           if (rank == 1) std::raise(SIGKILL);
           group.Barrier();
         });
       }},
      {"stubborn",
       [&] {
         Spawn(ranks, [&](int rank) {
           std::signal(SIGTERM, SIG_IGN);
           {
             ProcessGroup group = dslaunch::InitProcessGroup();
             group.Barrier();
           }
           if (rank == 0) _exit(7);
           Sleep();
         });
       }},
      {"hang",
       [&] {
         Spawn(ranks, [&](int) {
           Line(std::to_string(getpid()));
           Sleep();
         });
       }},
      {"hang_anew",
       [&] {
         StartThread();
         Spawn(ranks, [&](int) {
           Line(std::to_string(getpid()));
           Sleep();
         });
       }},
      {"other_way",  // the restarted program does not reach its Spawn call
       [&] {
         if (access(file, F_OK) == 0) return;
         std::ofstream(file) << "x";
         StartThread();
         Spawn(ranks, [](int) {});
       }},
      {"nested", [&] { Spawn(ranks, [&](int) { Spawn(2, [](int) {}); }); }},
      {"none", [&] { Spawn(0, [](int) {}); }},
      {"destructor", [&] { PrintSum(0); }},
      {"leaked", [&] { Meet(false); }},
      {"static", [&] { Meet(true); }},
      {"exit",
       [&] {
         ProcessGroup group = dslaunch::InitProcessGroup();
         SumOverRanks(group);
         std::exit(0);
       }},
  };
  if (what == "caught") return Caught();
  actions.at(what)();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argv[1];
  if (what == "main_fails") return dslaunch::Main(BreakShapes);
  if (what == "main_stops") return dslaunch::Main(RunUntilStopped);
  if (what == "main_refuses") {
    return dslaunch::Main(
        [] { throw dslaunch::TrainError(dslaunch::ExitCode{65}, "the data is \x1b[31mwrong"); });
  }
  if (what == "main_ends") return dslaunch::Main([] { Line("end"); });
  try {
    return Run(argv[1], std::atoi(argv[2]), argc > 3 ? argv[3] : "");
  } catch (const dslaunch::TrainError& error) {
    std::fprintf(stderr, "main: %s\n", error.what());
    return error.exit_code();
  }
}
