#include "trainer/comm/links/link_store.h"

#include <c10/util/Exception.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/os/pass_fd.h"
#include "base/os/socket_pair.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

using Op = StoreRequest::Op;

std::string TextOf(const std::vector<uint8_t>& value) { return {value.begin(), value.end()}; }
std::vector<uint8_t> BytesOf(const std::string& value) { return {value.begin(), value.end()}; }

std::string Described(const StoreRequest& request) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, request.keys.size()); ++i)
    text += (i == 0 ? "" : ", ") + request.keys[i];
  return request.keys.size() > kShown ? text + ", ..." : text;
}

// The store on rank 0, which also keeps the server alive.
class OwnStore : public LinkStore {
 public:
  OwnStore(std::shared_ptr<StoreServer> server, std::shared_ptr<StoreClient> client,
           std::shared_ptr<RankConnections> connections, std::chrono::milliseconds timeout)
      : LinkStore(client, timeout),
        server_(std::move(server)),
        own_client_(std::move(client)),
        connections_(std::move(connections)) {}

  c10::intrusive_ptr<Store> clone() override {
    return c10::make_intrusive<OwnStore>(server_, own_client_, connections_, timeout_);
  }

 private:
  std::shared_ptr<StoreServer> server_;
  std::shared_ptr<StoreClient> own_client_;
  std::shared_ptr<RankConnections> connections_;
};

// The result of dialing rank 0, for which a thread can wait.
class Dialed {
 public:
  void Set(Result<UniqueFd> result) {
    const MutexLock lock(mutex_);
    result_ = std::move(result);
    changed_.NotifyAll();
  }
  std::optional<Result<UniqueFd>> Take(Deadline deadline) {
    const MutexLock lock(mutex_);
    changed_.WaitUntil(mutex_, deadline.when(),
                       [this]() DSL_REQUIRES(mutex_) { return result_.has_value(); });
    return std::move(result_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Result<UniqueFd>> result_ DSL_GUARDED_BY(mutex_);
};

}  // namespace

StoreClient::StoreClient(UniqueFd server) : server_(std::move(server)) {
  thread_ = std::thread([this] { Run(); });
}

StoreClient::~StoreClient() {
  ::shutdown(server_.get(), SHUT_RDWR);  // makes Run() return, so that the thread ends
  thread_.join();
}

StoreReply StoreClient::Call(StoreRequest request, std::chrono::milliseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  {
    const MutexLock lock(mutex_);
    request.id = ++last_id_;
    awaited_[request.id] = std::nullopt;
  }
  bool sent = false;
  {
    const MutexLock lock(send_mutex_);
    sent = SendWithFd(server_.get(), EncodeRequest(request), -1);
  }
  const MutexLock lock(mutex_);
  const uint64_t id = request.id;
  const bool came =
      sent && changed_.WaitUntil(mutex_, deadline.when(), [this, id]() DSL_REQUIRES(mutex_) {
        return closed_ || awaited_.at(id).has_value();
      });
  std::optional<StoreReply> reply = std::move(awaited_.at(id));
  awaited_.erase(id);
  if (reply) {
    if (Answers(*reply, request)) return *std::move(reply);
    C10_THROW_ERROR(DistStoreError, "store: rank 0 answered with " +
                                        std::to_string(reply->values.size()) + " values to " +
                                        Described(request));
  }
  if (!came && sent) {
    C10_THROW_ERROR(DistStoreError, "store: timed out after " + std::to_string(limit.count()) +
                                        " ms waiting for " + Described(request));
  }
  C10_THROW_ERROR(DistStoreError, "store: Connection closed by rank 0, which keeps it");
}

void StoreClient::Run() {
  pthread_setname_np(pthread_self(), "dslaunch-store");
  std::string buffer;
  std::string bytes(size_t{64} << 10, '\0');
  while (true) {
    pollfd ready = {server_.get(), POLLIN, 0};
    if (::poll(&ready, 1, /*timeout=*/60'000) <= 0) continue;
    const ssize_t got = ::recv(server_.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return Close();
    buffer.append(bytes, 0, static_cast<size_t>(got));
    try {
      while (const std::optional<std::string> message = TakeStoreMessage(buffer)) {
        std::optional<StoreReply> reply = DecodeReply(*message);
        if (!reply) return Close();
        const MutexLock lock(mutex_);
        const auto awaited = awaited_.find(reply->id);
        // The request timed out before this reply arrived.
        if (awaited == awaited_.end()) continue;
        awaited->second = std::move(reply);
        changed_.NotifyAll();
      }
    } catch (const std::runtime_error&) {
      return Close();
    }
  }
}

void StoreClient::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

c10::intrusive_ptr<c10d::Store> LinkStore::clone() {
  return c10::make_intrusive<LinkStore>(client_, timeout_);
}

StoreReply LinkStore::Call(Op op, std::vector<std::string> keys, std::vector<std::string> values,
                           int64_t number) {
  return client_->Call({op, 0, number, std::move(keys), std::move(values)}, timeout_);
}

void LinkStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  Call(Op::kSet, {key}, {TextOf(value)});
}

std::vector<uint8_t> LinkStore::compareSet(const std::string& key,
                                           const std::vector<uint8_t>& expected,
                                           const std::vector<uint8_t>& desired) {
  return BytesOf(Call(Op::kCompareSet, {key}, {TextOf(expected), TextOf(desired)}).values.at(0));
}

std::vector<uint8_t> LinkStore::get(const std::string& key) {
  return BytesOf(Call(Op::kGet, {key}).values.at(0));
}

int64_t LinkStore::add(const std::string& key, int64_t value) {
  return Call(Op::kAdd, {key}, {}, value).number;
}

bool LinkStore::deleteKey(const std::string& key) { return Call(Op::kDelete, {key}).number != 0; }

bool LinkStore::check(const std::vector<std::string>& keys) {
  return Call(Op::kCheck, keys).number != 0;
}

int64_t LinkStore::getNumKeys() { return Call(Op::kNumKeys, {}).number; }

void LinkStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void LinkStore::wait(const std::vector<std::string>& keys,
                     const std::chrono::milliseconds& timeout) {
  client_->Call({Op::kWait, 0, 0, keys, {}}, timeout);
}

void LinkStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  Call(Op::kAppend, {key}, {TextOf(value)});
}

std::vector<std::vector<uint8_t>> LinkStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<std::vector<uint8_t>> values;
  for (const std::string& value : Call(Op::kGet, keys).values) values.push_back(BytesOf(value));
  return values;
}

void LinkStore::multiSet(const std::vector<std::string>& keys,
                         const std::vector<std::vector<uint8_t>>& values) {
  std::vector<std::string> texts;
  for (const std::vector<uint8_t>& value : values) texts.push_back(TextOf(value));
  Call(Op::kSet, keys, std::move(texts));
}

c10::intrusive_ptr<c10d::Store> ConnectStore(const std::shared_ptr<RankConnections>& connections,
                                             const std::string& label,
                                             std::chrono::milliseconds timeout) {
  if (connections->rank() == 0) {
    const auto server = std::make_shared<StoreServer>();
    connections->Listen(label,
                        {.on_dialed = [](size_t, UniqueFd) {},
                         .on_link = [server](size_t, UniqueFd fd) { server->Adopt(std::move(fd)); },
                         .on_failed = [](size_t, const std::string&) {}});
    Result<SocketPair> pair = MakeSocketPair();
    if (!pair) throw TrainError(pair.error().code, pair.error().message);
    server->Adopt(std::move(pair->ours));
    return c10::make_intrusive<OwnStore>(
        server, std::make_shared<StoreClient>(std::move(pair->theirs)), connections, timeout);
  }
  const auto dialed = std::make_shared<Dialed>();
  connections->Listen(label,
                      {.on_dialed = [dialed](size_t, UniqueFd fd) { dialed->Set(std::move(fd)); },
                       .on_link = [](size_t, UniqueFd) {},
                       .on_failed =
                           [dialed](size_t, const std::string& why) {
                             dialed->Set(Error{ExitCode::kUnavailable, why});
                           }});
  connections->Dial(label, 0, RankPlace());
  std::optional<Result<UniqueFd>> result = dialed->Take(Deadline::After(timeout));
  connections->Unlisten(label);
  if (!result) throw PeerLate("the agents give no connection to rank 0");
  if (!result->ok()) throw PeerLost("there is no connection to rank 0: " + result->error().message);
  return c10::make_intrusive<LinkStore>(std::make_shared<StoreClient>(*std::move(*result)),
                                        timeout);
}

}  // namespace dslaunch
