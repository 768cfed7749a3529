// Stands in for dslaunch-agent where a command inspects a running job: serves a job of one node in
// the roles attach and read. The job's id selects its behaviour: "ends" succeeds once a viewer has
// attached, "stops" ends when it is stopped, "breaks" breaks the first connection and has ended
// when the viewer connects again, "endless" runs until the viewer disconnects.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

#include "base/deadline.h"
#include "base/os/build_id.h"
#include "proto/agent.grpc.pb.h"
#include "proto/inspect.grpc.pb.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

class Job : public pb::Agent::Service {
 public:
  explicit Job(std::string id) : id_(std::move(id)) {}

  grpc::Status Attach(grpc::ServerContext* context, const pb::AttachRequest*,
                      grpc::ServerWriter<pb::NodeEvent>* writer) override {
    pb::NodeEvent event;
    event.mutable_started()->set_attempt(1);
    event.mutable_started()->set_world_size(1);
    writer->Write(event);
    event.mutable_log()->set_data("a line of rank 0\n");
    event.mutable_log()->set_attempt(1);
    writer->Write(event);
    if (id_ == "breaks") {
      ::shutdown(STDIN_FILENO, SHUT_RDWR);
      return grpc::Status::OK;
    }
    const Deadline deadline = Deadline::After(milliseconds(20'000));
    while (!context->IsCancelled() && !deadline.Expired() && id_ != "ends" && !stopped_) {
      event.mutable_alive();
      writer->Write(event);
      usleep(20'000);
    }
    event.mutable_outcome();
    writer->Write(event);
    event.mutable_done()->set_completed(true);
    event.mutable_done()->set_teardown_complete(true);
    writer->Write(event);
    return grpc::Status::OK;
  }

  grpc::Status Stop(grpc::ServerContext*, const pb::StopRequest*, pb::Empty*) override {
    stopped_ = true;
    return grpc::Status::OK;
  }

 private:
  const std::string id_;
  std::atomic<bool> stopped_ = false;
};

class Files : public pb::Inspection::Service {
 public:
  grpc::Status Look(grpc::ServerContext*, const pb::JobPlace* place, pb::JobSight* sight) override {
    sight->set_state(pb::JobSight::ENDED);
    sight->mutable_result()->set_job_id(place->job_id());
    sight->mutable_result()->mutable_done()->set_completed(true);
    return grpc::Status::OK;
  }

  grpc::Status Read(grpc::ServerContext*, const pb::ReadRequest*,
                    grpc::ServerWriter<pb::NodeEvent>* writer) override {
    pb::NodeEvent event;
    event.mutable_log()->set_data("a line of rank 0\n");
    writer->Write(event);
    event.mutable_done();
    writer->Write(event);
    return grpc::Status::OK;
  }
};

int Serve(const std::string& nonce, const std::string& job_id) {
  const std::string hello = FormatHello(nonce, OwnBuildId());
  if (::write(STDOUT_FILENO, hello.data(), hello.size()) < 0) return 1;
  Job job(job_id);
  Files files;
  grpc::ServerBuilder builder;
  SetCommonServerOptions(builder);
  builder.RegisterService(&job);
  builder.RegisterService(&files);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ServeFd(*server, UniqueFd(::dup(STDIN_FILENO)));
  pollfd other_end{STDIN_FILENO, POLLRDHUP, 0};
  ::poll(&other_end, 1, /*timeout=*/60'000);
  ::_exit(0);
}

}  // namespace
}  // namespace dslaunch

// Usage: attach --nonce NONCE JOB NODE, or read --nonce NONCE.
int main(int argc, char** argv) {
  const bool attaches = argc == 6 && std::strcmp(argv[1], "attach") == 0;
  const bool reads = argc == 4 && std::strcmp(argv[1], "read") == 0;
  if (!attaches && !reads) return 64;
  return dslaunch::Serve(argv[3], attaches ? argv[4] : "");
}
