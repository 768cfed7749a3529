#include "agent/mpi/mpi_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/pmix_job.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::mpi_environment_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

pb::Node NodeOf(const std::string& name, uint32_t slots) {
  pb::Node node;
  node.set_name(name);
  node.set_slots(slots);
  return node;
}

pb::Assignment AssignmentOf(uint32_t node_rank, uint32_t first_rank, uint32_t world_size) {
  pb::Assignment assignment;
  assignment.set_node_rank(node_rank);
  assignment.set_first_rank(first_rank);
  assignment.set_world_size(world_size);
  return assignment;
}

TEST(PmixJobTest, ListsNodesWithTheirRanks) {
  const Result<pb::PmixJob> job =
      MakePmixJob("j-1", 3, AssignmentOf(1, 2, 5), {NodeOf("a.b", 2), NodeOf("c", 3)});
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->nspace(), "j-1.3");
  EXPECT_EQ(job->node_rank(), 1u);
  EXPECT_EQ(job->nodes(0).name(), "a.b");
  EXPECT_EQ(job->nodes(1).first_rank(), 2u);
  EXPECT_EQ(job->nodes(1).ranks(), 3u);
}

TEST(PmixJobTest, ReplacesNamesThatPmixRejects) {
  for (const auto& names : {std::pair("a", "a"), {"a,b", "c"}, {"fd00::1", "c"}, {"", "c"}}) {
    const Result<pb::PmixJob> job = MakePmixJob("j", 1, AssignmentOf(0, 0, 2),
                                                {NodeOf(names.first, 1), NodeOf(names.second, 1)});
    ASSERT_TRUE(job.ok());
    EXPECT_EQ(job->nodes(0).name() + " " + job->nodes(1).name(), "node0 node1");
  }
}

TEST(PmixJobTest, RejectsAssignmentThatDoesNotMatchNodes) {
  EXPECT_FALSE(MakePmixJob("j", 1, AssignmentOf(0, 0, 3), {NodeOf("a", 2)}).ok());
  EXPECT_FALSE(MakePmixJob("j", 1, AssignmentOf(1, 0, 2), {NodeOf("a", 2)}).ok());
  EXPECT_FALSE(MakePmixJob("j", 1, AssignmentOf(0, 1, 2), {NodeOf("a", 2)}).ok());
}

TEST(MpiEnvironmentTest, SetsOnlyPmiVariablesWithoutUri) {
  EXPECT_THAT(MpiEnvironment(PmixJobOf({2, 3}, 1), 2, {}),
              ElementsAre("PMI_RANK=4", "PMI_SIZE=5", "MPI_LOCALRANKID=2", "MPI_LOCALNRANKS=3"));
}

TEST(MpiEnvironmentTest, NamesPmixServerAtItsUri) {
  pb::PmixJob job = PmixJobOf({2, 3}, 1);
  job.set_uri(PmixUri(job, 4711));
  EXPECT_EQ(job.uri(), "job.1.servers.1;tcp4://127.0.0.1:4711");
  EXPECT_THAT(MpiEnvironment(job, 0, {}),
              IsSupersetOf({"PMI_RANK=2", "PMIX_RANK=2", "PMIX_NAMESPACE=job.1",
                            "PMIX_SERVER_URI4=job.1.servers.1;tcp4://127.0.0.1:4711",
                            "OMPI_MCA_btl_vader_backing_directory=/tmp/x"}));
}

// OMPI_MCA_ess is not set, because an mpirun started by a rank reads it too, and fails with the
// value of a rank.
TEST(MpiEnvironmentTest, KeepsUsersFolderAndSetsNoEss) {
  pb::PmixJob job = PmixJobOf({2}, 0);
  job.set_uri(PmixUri(job, 4711));
  EXPECT_THAT(MpiEnvironment(job, 0, {"OMPI_MCA_btl_vader_backing_directory=/mine"}),
              Each(AllOf(Not(StartsWith("OMPI_MCA_ess=")),
                         Not(StartsWith("OMPI_MCA_btl_vader_backing_directory=")))));
}

TEST(MpiEnvironmentTest, RecognizesVariablesOfAnotherServer) {
  EXPECT_TRUE(IsOfAnotherMpiServer("PMIX_SERVER_URI41=x"));
  EXPECT_TRUE(IsOfAnotherMpiServer("PMI_FD=7"));
  EXPECT_FALSE(IsOfAnotherMpiServer("PMIX_MCA_ptl=tcp"));
  EXPECT_FALSE(IsOfAnotherMpiServer("PATH=PMIX_RANK=1"));
}

TEST(PmixLibraryFolderTest, SearchesLdLibraryPathFirst) {
  const TempDir dir;
  std::ofstream(dir.path() + "/libpmix.so.2") << "";
  EXPECT_EQ(PmixLibraryFolder({"LD_LIBRARY_PATH=/none::relative:" + dir.path()}), dir.path());
  EXPECT_NE(PmixLibraryFolder({"LD_LIBRARY_PATH=/none"}), "/none");
}

}  // namespace
}  // namespace dslaunch::mpi_environment_test
