// Detects ranks that have diverged and wait for each other, and ends their waits with an error that
// names the exchange that each rank waits for.
#pragma once

#include <c10/core/Event.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "dslaunch/process_group.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/collective_progress.h"
#include "trainer/comm/wait_report.h"

namespace dslaunch {

// Observes the waits of a rank for other ranks, all of which pass through the detector of its
// ProcessGroup. After Watch, a thread publishes long waits of this rank in the store and reads the
// other ranks' waits (collective_progress.h). If this rank is stuck, the wait and every later wait
// throw TrainError kBadInput; if it has waited too long, they throw kTimedOut. Long waits are also
// reported to the rank's agent. Only the thread that runs the collectives may call Begin and Wait.
// Without long waits, each wait costs only a lock.
//
// On a device the stream waits instead of the thread. The thread later waits for the stream in any
// operation, from which the detector cannot throw. An event after each collective therefore shows
// the progress of the stream. If the stream is stuck or late, the process ends by ExitByFailure
// (trainer/base/failure_exit.h).
class DesyncDetector : public std::enable_shared_from_this<DesyncDetector> {
 public:
  struct Patience {
    std::chrono::milliseconds quiet{5'000};    // minimum duration of a wait that is reported
    std::chrono::milliseconds limit{570'000};  // maximum duration of a wait
  };
  // Returns the limits for a group with this timeout. A wait ends before the group's own timeout,
  // because the error of that timeout names no rank.
  static Patience PatienceFor(std::chrono::milliseconds timeout);

  // Creates a detector for `rank`. `names` has, by rank, the number of each rank in messages.
  DesyncDetector(c10::intrusive_ptr<c10d::Store> store, int rank, std::vector<size_t> names);
  ~DesyncDetector();
  DesyncDetector(const DesyncDetector&) = delete;
  DesyncDetector& operator=(const DesyncDetector&) = delete;

  // Makes the detector `all` include this group's exchanges in its reports, so that ranks that wait
  // for each other in different groups are detected. The same thread must begin and await the
  // exchanges of both groups. `members` are this group's ranks in the group of `all`. Call it
  // before the first Watch.
  void Join(std::shared_ptr<DesyncDetector> all, std::vector<size_t> members);

  // Starts the thread, which connects to the store. Only the first call has an effect.
  void Watch(const Patience& patience);
  void Stop();  // requests the thread to end, without waiting for it

  // Counts an exchange and returns it. Call it just before this rank begins its part.
  Exchange Begin(const std::string& what);
  // Waits for `work`. On a device, only makes the current stream wait for `work`. Throws the errors
  // of `work`.
  void Wait(const Exchange& exchange, const c10::intrusive_ptr<c10d::Work>& work);
  // Calls `wait`, which waits for `exchange` in a library. `wait` is not interrupted, so it must
  // end by itself. Because the other ranks read that this rank waits, they exit if the ranks are
  // stuck, which ends `wait`.
  void Wait(const Exchange& exchange, const std::function<void()>& wait);

 private:
  struct Waiting {
    Exchange exchange;
    Clock::time_point since;
    std::function<void()> interrupt;
    bool on_device = false;
    bool SameAs(const std::optional<Waiting>& other) const {
      return other && other->since == since && other->exchange == exchange;
    }
  };

  // A collective that is queued in the device's stream.
  struct Enqueued {
    Exchange exchange;
    std::shared_ptr<c10::Event> done;
    Clock::time_point since;  // time at which this became the first unfinished collective
  };

  Exchange Begin(const std::string& what, const std::vector<size_t>& members);
  void Wait(const Exchange& exchange, const std::function<void()>& wait,
            std::function<void()> interrupt);
  void WaitOnDevice(const Exchange& exchange, const c10::intrusive_ptr<c10d::Work>& work,
                    c10::Device device);
  void ForgetDone() DSL_REQUIRES(mutex_);
  // Returns a wait that is long enough to report, and sets `place` to this rank's progress. Returns
  // nullopt if there is no long wait.
  std::optional<Waiting> LongWait(CollectiveProgress* place) DSL_REQUIRES(mutex_);
  bool StillWaits(const Waiting& waiting) DSL_REQUIRES(mutex_);
  void Run();
  bool Sleep(std::chrono::milliseconds duration);  // returns false after Stop
  std::string KeyOf(int rank) const;
  void Publish(const CollectiveProgress& place);
  std::vector<CollectiveProgress> Ask(const CollectiveProgress& own);
  std::optional<TrainError> Judge(const std::vector<CollectiveProgress>& places,
                                  const Waiting& waiting) const;
  void PublishEnd(CollectiveProgress place);
  std::chrono::milliseconds Period() const { return patience_.quiet / 5; }

  const int rank_;
  const int world_size_;
  const std::vector<size_t> names_;
  c10::intrusive_ptr<c10d::Store> store_;  // after Watch, used only by the thread
  // Detector of the whole job; set by Join together with members_.
  std::shared_ptr<DesyncDetector> all_;
  std::vector<size_t> members_;
  Patience patience_;
  const WaitReport wait_report_;
  bool watched_ = false;

  Mutex mutex_;
  CondVar stop_called_;
  bool stopped_ DSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, int64_t> begun_ DSL_GUARDED_BY(mutex_);
  std::optional<Waiting> waiting_ DSL_GUARDED_BY(mutex_);
  std::deque<Enqueued> enqueued_ DSL_GUARDED_BY(mutex_);
  // Exchanges that a device may not have completed yet, in the order in which they were begun.
  std::deque<Exchange> unsettled_ DSL_GUARDED_BY(mutex_);
  std::optional<TrainError> verdict_ DSL_GUARDED_BY(mutex_);
  // True if waits must throw `verdict_` even if their exchange is complete.
  bool ends_ DSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace dslaunch
