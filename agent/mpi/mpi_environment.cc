#include "agent/mpi/mpi_environment.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace dslaunch {
namespace {

constexpr char kPmixLibrary[] = "libpmix.so.2";
// Library folders of Debian, of Fedora and its derivatives, and of local builds.
constexpr const char* kLibraryFolders[] = {"/usr/lib/x86_64-linux-gnu",
                                           "/usr/lib/aarch64-linux-gnu",
                                           "/lib/x86_64-linux-gnu",
                                           "/lib/aarch64-linux-gnu",
                                           "/usr/lib64",
                                           "/lib64",
                                           "/usr/local/lib",
                                           "/usr/local/lib64",
                                           "/usr/lib"};

// Variables with the server's address. OpenPMIx 4.1 and later read the first variable, and older
// versions read the others.
constexpr const char* kUriVariables[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4",
                                         "PMIX_SERVER_URI3", "PMIX_SERVER_URI21",
                                         "PMIX_SERVER_URI2"};
// Open MPI 4 uses a PMIx server only if it recognizes the launcher; otherwise each rank forms a
// world of its own. Its component schizo/orte or, with a scheduler's variables, the scheduler's
// component decides that, so these components are excluded. Other libraries ignore this variable,
// and an mpirun started by a rank does not need the components.
constexpr char kForOpenMpi4[] = "OMPI_MCA_schizo=^orte,slurm,alps,flux,jsm";
// Variables for the folder in which Open MPI 4 and 5 store the shared memory of a node's ranks. The
// names of its files do not distinguish two nodes on one machine, so the variables name the job's
// own folder. That folder is removed however the ranks end.
constexpr const char* kSharedMemoryFolders[] = {"OMPI_MCA_btl_vader_backing_directory",
                                                "OMPI_MCA_btl_sm_backing_directory"};

const pb::PmixNode& OwnNode(const pb::PmixJob& job) {
  return job.nodes(static_cast<int>(job.node_rank()));
}

}  // namespace

Result<pb::PmixJob> MakePmixJob(const std::string& job_id, uint64_t attempt,
                                const pb::Assignment& assignment,
                                const std::vector<pb::Node>& members) {
  pb::PmixJob job;
  job.set_nspace(job_id + "." + std::to_string(attempt));
  job.set_attempt(attempt);
  job.set_node_rank(assignment.node_rank());
  std::set<std::string> names;
  bool is_plain = true;  // whether no name contains a separator of PMIx's lists
  uint32_t next = 0;
  for (const pb::Node& member : members) {
    pb::PmixNode& node = *job.add_nodes();
    node.set_name(member.name());
    node.set_first_rank(next);
    node.set_ranks(member.slots());
    next += member.slots();
    names.insert(member.name());
    is_plain = is_plain && !member.name().empty() &&
               member.name().find_first_of(",;:[]\"' ") == std::string::npos;
  }
  if (!is_plain || names.size() < members.size()) {
    for (int i = 0; i < job.nodes_size(); ++i)
      job.mutable_nodes(i)->set_name("node" + std::to_string(i));
  }
  const bool fits = assignment.node_rank() < members.size() && next == assignment.world_size() &&
                    OwnNode(job).first_rank() == assignment.first_rank();
  if (!fits)
    return Error{ExitCode::kInternal, "the ranks of the attempt do not fit the nodes of the job"};
  return job;
}

std::string PmixUri(const pb::PmixJob& job, int port) {
  return job.nspace() + ".servers." + std::to_string(job.node_rank()) +
         ";tcp4://127.0.0.1:" + std::to_string(port);
}

std::vector<std::string> MpiEnvironment(const pb::PmixJob& job, uint32_t local_rank,
                                        const Environment& of_programs) {
  const pb::PmixNode& own = OwnNode(job);
  uint32_t world_size = 0;
  for (const pb::PmixNode& node : job.nodes()) world_size += node.ranks();
  const std::string rank = std::to_string(own.first_rank() + local_rank);
  std::vector<std::string> environment = {"PMI_RANK=" + rank,
                                          "PMI_SIZE=" + std::to_string(world_size),
                                          "MPI_LOCALRANKID=" + std::to_string(local_rank),
                                          "MPI_LOCALNRANKS=" + std::to_string(own.ranks())};
  if (job.uri().empty()) return environment;
  environment.insert(environment.end(),
                     {"PMIX_NAMESPACE=" + job.nspace(), "PMIX_RANK=" + rank,
                      "PMIX_HOSTNAME=" + own.name(), "PMIX_SECURITY_MODE=native",
                      "PMIX_GDS_MODULE=hash", "PMIX_BFROP_BUFFER_TYPE=PMIX_BFROP_BUFFER_NON_DESC",
                      "PMIX_SERVER_TMPDIR=" + job.folder(), "PMIX_SYSTEM_TMPDIR=" + job.folder()});
  for (const char* variable : kUriVariables)
    environment.push_back(std::string(variable) + "=" + job.uri());
  environment.emplace_back(kForOpenMpi4);
  for (const char* variable : kSharedMemoryFolders) {
    if (FindVariable(of_programs, variable) == nullptr)
      environment.push_back(std::string(variable) + "=" + job.folder());
  }
  return environment;
}

bool IsOfAnotherMpiServer(const std::string& entry) {
  return (entry.starts_with("PMIX_") && !entry.starts_with("PMIX_MCA_")) ||
         entry.starts_with("PMI_");
}

std::string PmixLibraryFolder(const Environment& environment) {
  const auto has_library = [](const std::string& folder) {
    return folder.starts_with('/') && ::access((folder + "/" + kPmixLibrary).c_str(), R_OK) == 0;
  };
  const char* const path = FindVariable(environment, "LD_LIBRARY_PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::string folder(rest.substr(0, rest.find(':')));
    if (has_library(folder)) return folder;
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
  }
  const auto found = std::ranges::find_if(kLibraryFolders, has_library);
  return found == std::end(kLibraryFolders) ? "" : *found;
}

}  // namespace dslaunch
