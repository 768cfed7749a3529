#include "trainer/comm/links/link_backend.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <pthread.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "trainer/comm/backend/cpu_backend.h"
#include "trainer/comm/links/host_groups.h"
#include "trainer/comm/links/link_collectives.h"
#include "trainer/comm/links/link_engine.h"
#include "trainer/comm/links/link_gather.h"

namespace dslaunch {
namespace {

// Runs functions one after the other on a separate thread.
class Sequence {
 public:
  Sequence() : thread_([this] { Run(); }) {}
  // Runs the remaining functions before it returns, and then ends the thread.
  ~Sequence() {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    changed_.NotifyAll();
    thread_.join();
  }
  void Add(std::function<void()> act) {
    {
      const MutexLock lock(mutex_);
      acts_.push_back(std::move(act));
    }
    changed_.NotifyAll();
  }

 private:
  void Run() {
    pthread_setname_np(pthread_self(), "dslaunch-coll");
    const at::NoGradGuard no_grad;
    // A reduction is already divided over the ranks, and other threads compute, so LibTorch uses
    // only one thread here.
    const c10::ParallelGuard sequential(true);
    while (true) {
      std::function<void()> act;
      {
        const MutexLock lock(mutex_);
        changed_.Wait(mutex_, [this]() DSL_REQUIRES(mutex_) { return stop_ || !acts_.empty(); });
        if (acts_.empty()) return;
        act = std::move(acts_.front());
        acts_.pop_front();
      }
      act();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> acts_ DSL_GUARDED_BY(mutex_);
  bool stop_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // declared last because it uses the other members
};

class LinkBackend : public CpuBackend {
 public:
  LinkBackend(std::shared_ptr<RankConnections> connections, std::string label,
              c10::intrusive_ptr<c10d::Store> places, int rank, std::vector<size_t> job_ranks,
              std::chrono::milliseconds timeout)
      : CpuBackend("links", rank, static_cast<int>(job_ranks.size())),
        connections_(std::move(connections)),
        label_(std::move(label)),
        timeout_(timeout),
        places_(std::move(places)),
        job_ranks_(job_ranks) {
    engine_ = std::make_shared<LinkEngine>(
        static_cast<size_t>(rank), job_ranks,
        [connections = connections_, label = label_, places = places_, job_ranks](size_t peer) {
          const size_t to = job_ranks[peer];
          connections->Dial(label, to, RankPlace::FromText(places->get_to_str(PlaceKey(to))));
        });
    if (!connections_) return;  // a group of one rank has no connections
    const auto group_rank = [job_ranks](size_t job_rank) {
      return static_cast<size_t>(std::ranges::find(job_ranks, job_rank) - job_ranks.begin());
    };
    const auto to_engine = [engine = engine_, group_rank](auto act) {
      return [engine, group_rank, act](size_t job_rank, auto&& what) {
        const size_t peer = group_rank(job_rank);
        if (peer < engine->ranks() && peer != engine->rank())
          act(*engine, peer, std::forward<decltype(what)>(what));
      };
    };
    connections_->Listen(
        label_, {.on_dialed = to_engine([](LinkEngine& engine, size_t peer, UniqueFd fd) {
                   engine.AdoptDialed(peer, std::move(fd));
                 }),
                 .on_link = to_engine([](LinkEngine& engine, size_t peer, UniqueFd fd) {
                   engine.AdoptIncoming(peer, std::move(fd));
                 }),
                 .on_failed = to_engine([](LinkEngine& engine, size_t peer,
                                           const std::string& why) { engine.Fail(peer, why); })});
  }

  ~LinkBackend() override { shutdown(); }

  void shutdown() override {
    if (!engine_) return;
    if (connections_) connections_->Unlisten(label_);
    engine_->FailAll("this rank has left the group");
    sequence_.reset();
    engine_.reset();
  }

  Ref<c10d::Work> Gather(const at::Tensor& flat, uint64_t tag) {
    const auto ranks = static_cast<size_t>(getSize());
    TORCH_CHECK(flat.nbytes() % ranks == 0, "links: a gather needs as many equal parts as ranks");
    return Begin(c10d::OpType::_ALLGATHER_BASE, "gather", {flat},
                 [=, this](const Ref<QueuedWork>& work) {
                   GiveUpWithAll(*work);
                   BeginGather(*engine_, Hosts(), BytesOf(flat), flat.nbytes() / ranks, tag,
                               Deadline::After(timeout_),
                               [work, flat](const std::exception_ptr& error) { work->End(error); });
                 });
  }

  // Returns the hosts of the group's ranks. Thread-safe.
  const HostGroups& Hosts() {
    const MutexLock lock(hosts_mutex_);
    if (hosts_) return *hosts_;
    std::vector<uint32_t> nodes(job_ranks_.size());
    if (nodes.size() > 2) {  // with one or two ranks, the hosts do not matter
      std::vector<std::string> keys;
      for (const size_t rank : job_ranks_) keys.push_back(PlaceKey(rank));
      const std::vector<std::vector<uint8_t>> places = places_->multiGet(keys);
      std::ranges::transform(places, nodes.begin(), [](const std::vector<uint8_t>& place) {
        return RankPlace::FromText(std::string(place.begin(), place.end())).node;
      });
    }
    return hosts_.emplace(nodes);
  }

 private:
  Start AllReduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) override {
    return InTurn(
        [tensor, op](LinkCollective& collective) { collective.AllReduce(tensor.view(-1), op); });
  }
  Start ReduceScatter(const at::Tensor& parts, const at::Tensor& result,
                      c10d::ReduceOp::RedOpType op) override {
    return InTurn([parts, result, op](LinkCollective& collective) {
      collective.ReduceScatter(parts, result, op);
    });
  }
  Start Broadcast(const at::Tensor& tensor, size_t root) override {
    return InTurn(
        [tensor, root](LinkCollective& collective) { collective.Broadcast(tensor, root); });
  }
  Start AllGather(const at::Tensor& input, const Tensors& outputs) override {
    return InTurn(
        [input, outputs](LinkCollective& collective) { collective.AllGather(input, outputs); });
  }
  Start AllToAll(const at::Tensor& input, const at::Tensor& output) override {
    return InTurn(
        [input, output](LinkCollective& collective) { collective.AllToAll(input, output); });
  }
  bool reduces_to_other_dtypes() const override { return true; }
  Start Barrier() override {
    return InTurn([](LinkCollective& collective) { collective.Barrier(); });
  }

  Start Send(size_t peer, uint64_t tag, const at::Tensor& tensor) override {
    return [=, this](const Ref<QueuedWork>& work) {
      GiveUpWithPeer(*work, peer);
      engine_->Send(peer, tag, BytesOf(tensor), tensor.nbytes(), Deadline::After(timeout_),
                    EndOf(work));
    };
  }
  Start Receive(size_t peer, uint64_t tag, const at::Tensor& tensor) override {
    return [=, this](const Ref<QueuedWork>& work) {
      GiveUpWithPeer(*work, peer);
      engine_->Receive(peer, tag, BytesOf(tensor), tensor.nbytes(), Deadline::After(timeout_),
                       EndOf(work));
    };
  }

  void GiveUpWithPeer(QueuedWork& work, size_t peer) const {
    work.SetGiveUp([weak = std::weak_ptr<LinkEngine>(engine_), peer] {
      if (const auto engine = weak.lock()) engine->Fail(peer, "the exchange was cancelled");
    });
  }

  void GiveUpWithAll(QueuedWork& work) const {
    work.SetGiveUp([weak = std::weak_ptr<LinkEngine>(engine_)] {
      if (const auto engine = weak.lock()) engine->FailAll("the exchange was cancelled");
    });
  }

  // Runs `run` after all collectives that were begun earlier.
  Start InTurn(std::function<void(LinkCollective&)> run) {
    return [this, run = std::move(run)](const Ref<QueuedWork>& work) {
      GiveUpWithAll(*work);
      const Deadline deadline = Deadline::After(timeout_);
      sequence_->Add(
          [this, engine = engine_, work, number = collectives_++, deadline, run]() mutable {
            std::exception_ptr failure;
            std::optional<LinkCollective> collective;
            try {
              collective.emplace(*engine, Hosts(), staging_, number, deadline);
              run(*collective);
            } catch (const std::exception& error) {
              failure = std::current_exception();
              // FailAll ends all access to tensors and makes later collectives fail too.
              engine->FailAll(error.what());
            }
            run = nullptr;  // releases the operation's tensors
            work->End(failure);
          });
    };
  }

  const std::shared_ptr<RankConnections> connections_;
  const std::string label_;
  const std::chrono::milliseconds timeout_;
  const c10::intrusive_ptr<c10d::Store> places_;
  const std::vector<size_t> job_ranks_;
  std::shared_ptr<LinkEngine> engine_;
  StagingMemory staging_;  // used only by the thread of the collectives
  Mutex hosts_mutex_;
  // Set by the first call of Hosts().
  std::optional<HostGroups> hosts_ DSL_GUARDED_BY(hosts_mutex_);
  uint64_t collectives_ = 0;
  std::unique_ptr<Sequence> sequence_ = std::make_unique<Sequence>();
};

}  // namespace

bool SendsByHost(c10d::Backend& backend) {
  auto* const links = dynamic_cast<LinkBackend*>(&backend);
  return links != nullptr && links->Hosts().parts() > 1;
}

c10::intrusive_ptr<c10d::Work> GatherByHost(c10d::Backend& backend, const at::Tensor& flat,
                                            uint64_t tag) {
  return dynamic_cast<LinkBackend&>(backend).Gather(flat, tag);
}

std::string PlaceKey(size_t job_rank) { return "place/" + std::to_string(job_rank); }

c10::intrusive_ptr<c10d::Backend> MakeLinkBackend(
    const std::shared_ptr<RankConnections>& connections, const std::string& label,
    c10::intrusive_ptr<c10d::Store> places, int rank, const std::vector<size_t>& job_ranks,
    std::chrono::milliseconds timeout) {
  return c10::make_intrusive<LinkBackend>(connections, label, std::move(places), rank, job_ranks,
                                          timeout);
}

}  // namespace dslaunch
