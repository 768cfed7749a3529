#include "agent/node/copy_service.h"

#include <thread>
#include <utility>

#include "agent/node/copy_receiver.h"
#include "base/os/start_thread.h"

namespace dslaunch {
namespace {

// Limit of the time without a message from the front end, which sends a sign of life every 5 s
// while it waits for its turn.
constexpr milliseconds kSilence(60'000);

}  // namespace

grpc::ServerBidiReactor<pb::CopyInput, pb::CopyOutput>* CopyStream::Serve(bool allowed) {
  const auto stream = std::make_shared<CopyStream>();
  stream->Begin();
  if (!allowed) {
    stream->Finish(
        {grpc::PERMISSION_DENIED, "nothing is copied to nodes with commands of their own"});
    return stream.get();
  }
  Result<std::thread> thread = StartThread([stream] { stream->Run(); }, "to receive copies");
  if (thread.ok())
    thread->detach();
  else
    stream->Finish({grpc::RESOURCE_EXHAUSTED, thread.error().message});
  return stream.get();
}

void CopyStream::Run() {
  CopyPeer peer;
  peer.read = [this] { return Read(Deadline::After(kSilence)); };
  peer.write = [this](pb::CopyOutput output) {
    return Write(std::move(output), Deadline::After(kSilence));
  };
  const Result<std::string> folder = CopiesFolder();
  pb::CopyOutput last;
  if (folder.ok()) {
    last = CopyReceiver(*folder, std::move(peer)).Run();
  } else {
    last.mutable_failure()->set_exit_code(ToInt(folder.error().code));
    last.mutable_failure()->set_message(folder.error().message);
  }
  Write(std::move(last), Deadline::After(kSilence));
  Flush(Deadline::After(kSilence));
  Finish(grpc::Status::OK);
}

}  // namespace dslaunch
