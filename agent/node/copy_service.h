// Serves one Copy call (proto/agent.proto) on a separate thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "proto/agent.pb.h"
#include "proto/wire/blocking_stream.h"

namespace dslaunch {

class CopyStream final
    : public BlockingStream<grpc::ServerBidiReactor<pb::CopyInput, pb::CopyOutput>, pb::CopyInput,
                            pb::CopyOutput> {
 public:
  // Returns a reactor for gRPC, which CopyReceiver serves and which is destroyed at the end of the
  // call. If `allowed` is false, the call is refused.
  static grpc::ServerBidiReactor<pb::CopyInput, pb::CopyOutput>* Serve(bool allowed);

  void OnCancel() override { SetEnded(); }
  void OnDone() override { SetDone(); }

 private:
  void Run();
};

}  // namespace dslaunch
