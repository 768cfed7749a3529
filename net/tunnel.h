// Connects an agent to the rendezvous by TLS.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

// A connection to the rendezvous.
struct RendezvousRoute {
  std::shared_ptr<grpc::Channel> channel;
  std::string address;  // numeric address of the rendezvous; empty if it is in this process
  // Flag that is set if the connection broke (TlsRelay::broke()); nullptr if the rendezvous is in
  // this process.
  std::shared_ptr<const std::atomic<bool>> broke = {};
};

// Connects to the first of the endpoints ("address:port", best first; see ConnectSearch) that
// proves to be node `rendezvous_node` of the job. The connection closes with the channel, or once
// nothing has arrived on it for `silent_after`. Blocks until the deadline, then fails with
// kTimedOut; the error names the endpoints and the last failure of each.
Result<RendezvousRoute> FindRendezvous(const std::vector<std::string>& endpoints,
                                       const std::string& job_id, uint32_t rendezvous_node,
                                       const pb::Credentials& credentials, Deadline deadline,
                                       milliseconds silent_after);

}  // namespace dslaunch
