#include "agent/host/mpi_use.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace dslaunch::mpi_use_test {
namespace {

TEST(MpiUseTest, AnExecutableThatIsLinkedToMpi) {
  EXPECT_EQ(MpiUse({{DSLAUNCH_MPI_PROGRAM}, "/"}), "libmpi.so.40");
  EXPECT_EQ(MpiUse({{"/proc/self/exe"}, "/"}), "");
}

TEST(MpiUseTest, AScriptThatImportsMpi4py) {
  const TempDir dir;
  const auto use = [&](const std::string& source) {
    std::ofstream(dir.path() + "/train.py") << source;
    return MpiUse({{"/no/python3", "-u", "train.py", "other.py"}, dir.path()});
  };
  EXPECT_EQ(use("import os\nfrom mpi4py import MPI\n"), "mpi4py");
  EXPECT_EQ(use("import mpi4py\n"), "mpi4py");
  EXPECT_EQ(use("def f():\n    from mpi4py import MPI\n# import mpi4py\n"), "");
}

TEST(MpiUseTest, TheFolderOfOpenPmix) {
  const TempDir dir;
  const Environment environment = {"LD_LIBRARY_PATH=:relative:/no/such:" + dir.path()};
  EXPECT_NE(PmixLibraryFolder(environment), dir.path());
  std::ofstream(dir.path() + "/libpmix.so.2") << "any";
  EXPECT_EQ(PmixLibraryFolder(environment), dir.path());
}

TEST(MpiUseTest, WhatCannotBeReadShowsNothing) {
  EXPECT_EQ(MpiUse({}), "");
  EXPECT_EQ(MpiUse({{"/no/such/program"}, "/"}), "");
  const TempDir dir;
  const std::string path = dir.path() + "/cut";
  std::ifstream whole(DSLAUNCH_MPI_PROGRAM, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(whole), {}};
  for (size_t size = 0; size < bytes.size(); size += 61) {
    std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
    const std::string use = MpiUse({{path}, "/"});
    EXPECT_TRUE(use.empty() || use.starts_with("libmpi")) << size;
  }
}

}  // namespace
}  // namespace dslaunch::mpi_use_test
