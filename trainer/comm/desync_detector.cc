#include "trainer/comm/desync_detector.h"

#include <ATen/core/ivalue.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "trainer/base/by_rank.h"
#include "trainer/base/failure_exit.h"

namespace dslaunch {
namespace {

// Allows a wait for a collective to end early. Needed because Gloo cannot abort a collective.
class CollectiveEnd {
 public:
  void Set(bool done) {
    const MutexLock lock(mutex_);
    if (!done_) done_ = done;
    changed_.NotifyAll();
  }
  // Waits until the collective is done. Returns false if the wait was interrupted.
  bool Wait() {
    const MutexLock lock(mutex_);
    changed_.Wait(mutex_, [this]() DSL_REQUIRES(mutex_) { return done_.has_value(); });
    return *done_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<bool> done_ DSL_GUARDED_BY(mutex_);
};

}  // namespace

DesyncDetector::Patience DesyncDetector::PatienceFor(milliseconds timeout) {
  return {.quiet = std::min<milliseconds>(Patience().quiet, timeout / 4),
          .limit = timeout - std::min<milliseconds>(std::chrono::seconds(30), timeout / 2)};
}

DesyncDetector::DesyncDetector(c10::intrusive_ptr<c10d::Store> store, int rank,
                               std::vector<size_t> names)
    : rank_(rank),
      world_size_(static_cast<int>(names.size())),
      names_(std::move(names)),
      store_(std::move(store)) {}

DesyncDetector::~DesyncDetector() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void DesyncDetector::Join(std::shared_ptr<DesyncDetector> all, std::vector<size_t> members) {
  all_ = std::move(all);
  members_ = std::move(members);
}

void DesyncDetector::Watch(const Patience& patience) {
  if (all_) return all_->Watch(patience);
  if (watched_ || world_size_ == 1) return;
  watched_ = true;
  patience_ = patience;
  // A waiting request blocks the store's connection for other threads, so the thread gets its own
  // connection.
  store_ = c10::make_intrusive<c10d::PrefixStore>("lockstep", store_->clone());
  Publish({});
  thread_ = std::thread([this] { Run(); });
}

void DesyncDetector::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  stop_called_.NotifyAll();
}

Exchange DesyncDetector::Begin(const std::string& what) {
  if (all_) return all_->Begin(what + " with " + RankList(names_), members_);
  return Begin(what, {});
}

Exchange DesyncDetector::Begin(const std::string& what, const std::vector<size_t>& members) {
  const MutexLock lock(mutex_);
  const Exchange exchange{what, ++begun_[what], members};
  if (watched_) unsettled_.push_back(exchange);
  return exchange;
}

void DesyncDetector::Wait(const Exchange& exchange, const c10::intrusive_ptr<c10d::Work>& work) {
  if (all_) return all_->Wait(exchange, work);
  if (!watched_) {
    work->wait();
    return;
  }
  if (c10d::isP2POp(work->retrieveOpType())) {
    Wait(
        exchange, [&] { work->wait(); }, [work] { work->abort(); });
    return;
  }
  if (const std::vector<c10::Device>& devices = work->getFuture()->devices(); !devices.empty()) {
    return WaitOnDevice(exchange, work, devices[0]);
  }
  const auto end = std::make_shared<CollectiveEnd>();
  work->getFuture()->addCallback([end](c10::ivalue::Future&) { end->Set(/*done=*/true); });
  Wait(
      exchange,
      [&] {
        if (end->Wait()) work->wait();  // throws the error of the collective
      },
      [end] { end->Set(/*done=*/false); });
}

void DesyncDetector::Wait(const Exchange& exchange, const std::function<void()>& wait) {
  if (all_) return all_->Wait(exchange, wait);
  Wait(exchange, wait, [] {});
}

void DesyncDetector::Wait(const Exchange& exchange, const std::function<void()>& wait,
                          std::function<void()> interrupt) {
  {
    const MutexLock lock(mutex_);
    if (ends_) throw TrainError(*verdict_);
    std::erase(unsettled_, exchange);  // a CPU exchange is never pending in a device's stream
    waiting_ = {exchange, Clock::now(), std::move(interrupt)};
  }
  try {
    wait();
  } catch (const std::exception&) {
    const MutexLock lock(mutex_);
    waiting_.reset();
    // Another rank may have broken the connection by exiting after the same verdict, so the verdict
    // takes precedence.
    if (verdict_) throw TrainError(*verdict_);
    throw;
  }
  const MutexLock lock(mutex_);
  waiting_.reset();
  if (ends_) throw TrainError(*verdict_);
}

void DesyncDetector::WaitOnDevice(const Exchange& exchange,
                                  const c10::intrusive_ptr<c10d::Work>& work, c10::Device device) {
  work->wait();
  auto done = std::make_shared<c10::Event>(device.type());
  done->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  const MutexLock lock(mutex_);
  enqueued_.push_back({exchange, std::move(done), Clock::now()});
}

void DesyncDetector::ForgetDone() {
  bool moved = false;
  for (; !enqueued_.empty() && enqueued_.front().done->query(); moved = true) {
    // A stream runs in order, so all earlier exchanges are done too and are removed.
    const auto own = std::ranges::find(unsettled_, enqueued_.front().exchange);
    if (own != unsettled_.end()) unsettled_.erase(unsettled_.begin(), own + 1);
    enqueued_.pop_front();
  }
  if (moved && !enqueued_.empty()) enqueued_.front().since = Clock::now();
}

std::optional<DesyncDetector::Waiting> DesyncDetector::LongWait(CollectiveProgress* place) {
  const auto is_long = [this](Clock::time_point since) {
    return Clock::now() - since >= patience_.quiet;
  };
  ForgetDone();
  if (!enqueued_.empty() && is_long(enqueued_.front().since)) {
    // The stream starts later collectives only after this one, so this rank reports them as not
    // begun.
    *place = {.awaited = enqueued_.front().exchange, .begun = begun_};
    auto later = std::ranges::find(unsettled_, enqueued_.front().exchange);
    while (later != unsettled_.end() && ++later != unsettled_.end()) {
      int64_t& begun = place->begun[later->what];
      begun = std::min(begun, later->number - 1);
    }
    return Waiting{enqueued_.front().exchange, enqueued_.front().since, [] {}, /*on_device=*/true};
  }
  if (!waiting_ || !is_long(waiting_->since)) return std::nullopt;
  *place = {.awaited = waiting_->exchange, .begun = begun_};
  return waiting_;
}

bool DesyncDetector::StillWaits(const Waiting& waiting) {
  if (!waiting.on_device) return waiting.SameAs(waiting_);
  ForgetDone();
  return !enqueued_.empty() && enqueued_.front().exchange == waiting.exchange;
}

void DesyncDetector::Run() {
  CollectiveProgress told;
  while (Sleep(Period())) {
    CollectiveProgress place;
    std::optional<Waiting> waiting;
    {
      const MutexLock lock(mutex_);
      waiting = LongWait(&place);
    }
    if (place.awaited != told.awaited) {
      const Clock::duration waited = waiting ? Clock::now() - waiting->since : Clock::duration(0);
      wait_report_.Report(place.awaited,
                          std::chrono::duration_cast<std::chrono::milliseconds>(waited));
    }
    try {
      if (place != told) Publish(place);
      told = place;
      if (!waiting) continue;
      std::optional<TrainError> verdict = Judge(Ask(place), *waiting);
      if (!verdict) continue;
      {
        const MutexLock lock(mutex_);
        if (!StillWaits(*waiting)) continue;  // the exchange has ended meanwhile
        verdict_ = std::move(verdict);
      }
      PublishEnd(place);
    } catch (const std::exception&) {
      // The store is lost because rank 0 is lost. This rank's connections to rank 0 break too,
      // which ends the wait, so the error is ignored.
    }
    const MutexLock lock(mutex_);
    if (!verdict_) return;
    if (waiting->on_device) ExitByFailure(*verdict_);
    ends_ = true;
    if (waiting_) waiting_->interrupt();
    return;
  }
}

std::optional<TrainError> DesyncDetector::Judge(const std::vector<CollectiveProgress>& places,
                                                const Waiting& waiting) const {
  const auto own = static_cast<size_t>(rank_);
  const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - waiting.since);
  const std::vector<size_t> stuck = FindStuck(places);
  // The error can name the exchange of every rank only after all ranks have reported their waits,
  // so the loop continues until then.
  const bool all_said = std::ranges::all_of(
      places, [](const CollectiveProgress& place) { return place.awaited.has_value(); });
  if ((all_said || waited >= 2 * patience_.quiet) && std::ranges::find(stuck, own) != stuck.end()) {
    return TrainError(ExitCode::kBadInput, DescribeStuck(places, names_));
  }
  if (waited < patience_.limit) return std::nullopt;
  return PeerLate(DescribeLate(places, own, waited, names_));
}

// Publishes that this rank will exit, and waits briefly until the other waiting ranks have reached
// the same verdict. Otherwise the first rank to exit would break the other ranks' connections,
// including those to the store on rank 0.
void DesyncDetector::PublishEnd(CollectiveProgress place) {
  place.knows = true;
  Publish(place);
  for (int round = 0; round < 3; ++round) {
    const std::vector<CollectiveProgress> places = Ask(place);
    const bool all = std::ranges::all_of(
        places, [](const CollectiveProgress& other) { return other.knows || !other.awaited; });
    if (!Sleep(Period()) || all) return;
  }
}

bool DesyncDetector::Sleep(milliseconds duration) {
  const MutexLock lock(mutex_);
  return !stop_called_.WaitFor(mutex_, duration,
                               [this]() DSL_REQUIRES(mutex_) { return stopped_; });
}

std::string DesyncDetector::KeyOf(int rank) const { return std::to_string(rank); }

void DesyncDetector::Publish(const CollectiveProgress& place) {
  const std::string text = FormatProgress(place);
  store_->set(KeyOf(rank_), std::vector<uint8_t>(text.begin(), text.end()));
}

// Returns the progress of all ranks. A rank that has not called Watch yet is reported as not
// waiting.
std::vector<CollectiveProgress> DesyncDetector::Ask(const CollectiveProgress& own) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size_; ++rank) keys.push_back(KeyOf(rank));
  std::vector<CollectiveProgress> places(keys.size());
  if (store_->check(keys)) {
    const std::vector<std::vector<uint8_t>> values = store_->multiGet(keys);
    std::ranges::transform(values, places.begin(), [](const std::vector<uint8_t>& value) {
      return ParseProgress(std::string(value.begin(), value.end()));
    });
  }
  places[static_cast<size_t>(rank_)] = own;
  return places;
}

}  // namespace dslaunch
