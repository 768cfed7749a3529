// Holds the state between Init and Shutdown: this process's rank and the process sets.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dslaunch/horovod.h"
#include "dslaunch/process_group.h"
#include "trainer/compat/horovod/exchange_thread.h"
#include "trainer/compat/horovod/timeline.h"

namespace dslaunch::horovod {

// Members of a process set. On ranks outside of the set, only `ranks` is set.
struct Members {
  std::vector<int> ranks;
  int own = -1;  // position of this rank in `ranks`; -1 if it is not there
  // Null for the set of all ranks, and on ranks outside of the set.
  std::unique_ptr<ProcessGroup> group;
  std::unique_ptr<ExchangeThread> thread;
};

class Context {
 public:
  explicit Context(const InitOptions& options);
  ~Context();

  // Returns the context. Throws TrainError kUsage with a hint before Init and after Shutdown.
  static Context& Get();

  const WorkerEnv& env() const;
  int cross_rank() const { return cross_rank_; }
  int cross_size() const { return cross_size_; }

  // Returns the members of a set. Throws TrainError kUsage if the set was removed.
  Members& Find(const ProcessSet& set);
  // Returns the exchange thread of a set. Throws TrainError kUsage if this rank is not in the set.
  ExchangeThread& ThreadOf(const ProcessSet& set);
  // Adds a set of `ranks` and returns its id. Throws TrainError kUsage unless the ranks are
  // ascending ranks of the job, each once.
  int Add(const std::vector<int>& ranks);
  // Removes a set, if it still exists. Throws TrainError kUsage for the set of all ranks.
  void Remove(const ProcessSet& set);
  // Returns a new name for an unnamed tensor, such as "allreduce.noname.3".
  std::string NewName(Kind kind);

 private:
  std::unique_ptr<WorkerEnv> env_;
  std::unique_ptr<ProcessGroup> group_;  // group of all ranks of the job
  InitOptions options_;
  int cross_rank_ = 0, cross_size_ = 1;
  std::unique_ptr<Timeline> timeline_;
  Mutex mutex_;
  std::map<int, std::unique_ptr<Members>> sets_ DSL_GUARDED_BY(mutex_);
  int next_set_ DSL_GUARDED_BY(mutex_) = 0;
  std::map<Kind, int64_t> unnamed_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch::horovod
