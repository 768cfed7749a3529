#include <google/protobuf/stubs/common.h>
#include <grpc/grpc.h>
#include <grpcpp/support/status.h>

#include <cstdio>

int main() {
  GOOGLE_PROTOBUF_VERIFY_VERSION;
  std::printf("gRPC %s: %s\n", grpc_version_string(), grpc::Status::OK.ok() ? "ok" : "bad");
}
