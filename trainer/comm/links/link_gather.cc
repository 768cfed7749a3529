#include "trainer/comm/links/link_gather.h"

#include <memory>
#include <utility>
#include <vector>

#include "trainer/comm/links/transfer_steps.h"

namespace dslaunch {
namespace {

// The tags of gathers are between the tags of other messages and the tags of collectives.
constexpr uint64_t kGather = uint64_t{1} << 62;
constexpr uint64_t kForwarded = uint64_t{1} << 61;
constexpr unsigned kRankBits = 24;

// One gather, which keeps itself alive through its callbacks.
class Gather : public std::enable_shared_from_this<Gather> {
 public:
  Gather(LinkEngine& engine, Deadline deadline, LinkEngine::Done done)
      : engine_(engine), deadline_(deadline), done_(std::move(done)) {}

  // Adds a message, and the messages `after` that begin when it is done. The gather ends only after
  // all these messages. Call it before Begin.
  void Add(const LinkTransfer& message, std::vector<LinkTransfer> after = {}) {
    left_ += 1 + after.size();
    first_.emplace_back(message, std::move(after));
  }
  void Begin() {
    for (auto& [message, then] : std::exchange(first_, {})) {
      Start(message, [self = shared_from_this(), after = std::move(then)] {
        // This callback runs on the engine's thread. The connections to neighbours already exist,
        // because this rank's own part was sent first.
        for (const LinkTransfer& next : after) self->Start(next, [] {});
      });
    }
  }

 private:
  void Start(const LinkTransfer& message, std::function<void()> then) {
    BeginTransfer(
        engine_, message, deadline_,
        [self = shared_from_this(), then = std::move(then)](const std::exception_ptr& error) {
          if (error) return self->End(error);
          then();
          if (--self->left_ == 0) self->End(nullptr);
        });
  }
  void End(const std::exception_ptr& error) {
    if (!std::exchange(ended_, true)) done_(error);
  }

  LinkEngine& engine_;  // engine that calls all callbacks on its thread
  const Deadline deadline_;
  const LinkEngine::Done done_;
  std::vector<std::pair<LinkTransfer, std::vector<LinkTransfer>>> first_;
  // Number of messages that are not done; after Begin, used only on the engine's thread.
  size_t left_ = 0;
  bool ended_ = false;
};

}  // namespace

void BeginGather(LinkEngine& engine, const HostGroups& hosts, std::byte* data, size_t part_bytes,
                 uint64_t tag, Deadline deadline, LinkEngine::Done done) {
  using Way = LinkTransfer::Way;
  const size_t own = engine.rank();
  // `from` is the rank whose part is sent, and `sender` is the rank that sends it. They differ if
  // the part is forwarded.
  const auto message = [&](Way way, size_t peer, size_t from, size_t sender) {
    const uint64_t part = sender == from ? 0 : kForwarded | from;
    return LinkTransfer{way, peer, kGather | part | (tag << kRankBits), data + from * part_bytes,
                        part_bytes};
  };
  const auto sends = [&](size_t from) {
    std::vector<LinkTransfer> messages;
    for (const size_t to : hosts.ReceiversOf(own, from))
      messages.push_back(message(Way::kSend, to, from, own));
    return messages;
  };
  const auto gather = std::make_shared<Gather>(engine, deadline, std::move(done));
  for (const LinkTransfer& one : sends(own)) gather->Add(one);
  for (size_t i = 1; i < engine.ranks(); ++i) {
    const size_t from = (own + i) % engine.ranks();
    const size_t sender = hosts.SenderTo(own, from);
    gather->Add(message(Way::kReceive, sender, from, sender), sends(from));
  }
  gather->Begin();
}

}  // namespace dslaunch
