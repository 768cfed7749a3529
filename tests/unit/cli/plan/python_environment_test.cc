#include "cli/plan/python_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "cli/plan/plan_info.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::front_python_test {
namespace {

namespace fs = std::filesystem;
using Need = pb::PythonEnvironment;

// Provides a folder with a Python environment of each kind.
class FrontPythonTest : public ::testing::Test {
 protected:
  FrontPythonTest() {
    for (const char* name : {"venv", "conda", "plain"}) {
      fs::create_directories(Folder(name) + "/bin");
      dir_.Write(std::string(name) + "/bin/python3", "#!/bin/sh\n", true);
      fs::create_symlink("/proc/self/exe", Folder(name) + "/bin/dslaunch");
    }
    dir_.Write("venv/pyvenv.cfg", "");
    fs::create_directory(dir_ / "conda/conda-meta");
  }
  std::string Folder(const std::string& name) const { return dir_.path() + "/" + name; }

  TempDir dir_;
};

TEST_F(FrontPythonTest, FindsEnvironmentOfProgram) {
  EXPECT_EQ(OwnPythonFolder(Folder("venv/bin/dslaunch")), Folder("venv"));
  EXPECT_EQ(OwnPythonFolder(Folder("conda/bin/dslaunch")), Folder("conda"));
  EXPECT_EQ(OwnPythonFolder(Folder("plain/bin/dslaunch")), "");
  EXPECT_EQ(OwnPythonFolder("/no/such/dslaunch"), "");
  fs::remove(dir_ / "venv/bin/python3");
  EXPECT_EQ(OwnPythonFolder(Folder("venv/bin/dslaunch")), "");
}

TEST_F(FrontPythonTest, PrefersActiveThenOwnThenConda) {
  const std::string conda = "CONDA_PREFIX=" + Folder("conda");
  const FrontPython active =
      FindFrontPython({"VIRTUAL_ENV=/v/", "PATH=/bin:/v/bin", conda}, Folder("venv"));
  EXPECT_EQ(active.folder, "/v");
  EXPECT_EQ(active.variable, "VIRTUAL_ENV");
  EXPECT_TRUE(active.in_path);
  EXPECT_EQ(active.installed_in, Folder("venv"));
  EXPECT_FALSE(FindFrontPython({"VIRTUAL_ENV=/v", "PATH=/bin:/v/bin2"}, "").in_path);
  const FrontPython own = FindFrontPython({conda}, Folder("venv"));
  EXPECT_EQ(own.folder, Folder("venv"));
  EXPECT_EQ(own.variable, "");
  for (const std::string& installed_in : {std::string(), Folder("conda")}) {
    const std::string path = "PATH=/no/such:" + Folder("conda/bin") + ":/bin";
    const FrontPython prefix = FindFrontPython({conda, path}, installed_in);
    EXPECT_EQ(prefix.folder, Folder("conda"));
    EXPECT_EQ(prefix.variable, "CONDA_PREFIX");
    EXPECT_TRUE(prefix.in_path);
  }
  const std::string path = "PATH=" + Folder("plain/bin") + ":" + Folder("conda/bin");
  EXPECT_EQ(FindFrontPython({conda, path}, "").folder, "") << "another python3 is before it";
  EXPECT_EQ(FindFrontPython({conda, path}, "").other, Folder("plain/bin/python3"));
  EXPECT_EQ(FindFrontPython({"PATH=/usr/bin"}, "").other, "");
  EXPECT_EQ(FindFrontPython({conda}, "").folder, "");
  EXPECT_EQ(FindFrontPython({"VIRTUAL_ENV=", "PATH=/bin"}, "").folder, "");
}

TEST_F(FrontPythonTest, FindsProgramsThatUsePython) {
  const std::string before = std::getenv("PATH");
  setenv("PATH", (Folder("venv/bin") + ":" + before).c_str(), 1);
  dir_.Write("venv/bin/accelerate", "#!x\n", true);
  const std::string script = dir_.Write("run.sh", "#!/bin/sh\n", true);
  EXPECT_EQ(PythonNeedOf({"python3", "t.py"}, Folder("venv")), Need::YES);
  EXPECT_EQ(PythonNeedOf({"accelerate", "launch"}, Folder("venv")), Need::YES);
  EXPECT_EQ(PythonNeedOf({"env", "A=1", "python3", "t.py"}, Folder("venv")), Need::YES);
  EXPECT_EQ(PythonNeedOf({"bash", "run.sh"}, Folder("venv")), Need::PERHAPS);
  EXPECT_EQ(PythonNeedOf({script}, Folder("venv")), Need::PERHAPS);
  EXPECT_EQ(PythonNeedOf({"true"}, Folder("venv")), Need::NO);
  setenv("PATH", before.c_str(), 1);
  EXPECT_NE(PythonNeedOf({"python3", "t.py"}, Folder("venv")), Need::YES) << "another is found";
}

TEST(NamedWorkingDirectoryTest, KeepsNameWithLinks) {
  const TempDir dir;
  fs::create_directory(dir / "real");
  fs::create_directory_symlink(dir / "real", dir / "link");
  const fs::path before = fs::current_path();
  fs::current_path(dir / "link");
  EXPECT_EQ(NamedWorkingDirectory(dir / "link"), dir / "link");
  EXPECT_EQ(NamedWorkingDirectory(dir / "real"), dir / "real");
  EXPECT_EQ(NamedWorkingDirectory(dir.path()), "") << "another folder";
  EXPECT_EQ(NamedWorkingDirectory((dir / "link") + "/../link"), "");
  EXPECT_EQ(NamedWorkingDirectory("."), "");
  EXPECT_EQ(NamedWorkingDirectory(""), "");
  fs::current_path(before);
}

}  // namespace
}  // namespace dslaunch::front_python_test
