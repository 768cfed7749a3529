# DSLAUNCH_COMMIT, the commit that is built, for `dslaunch --version`: of the clone when it was configured, or as given by
# who builds from an archive of it; else empty. It says "-changed" where files differ from it.
include_guard(GLOBAL)
set(DSLAUNCH_COMMIT "" CACHE STRING "The commit that is built; empty: the clone's")
if(DSLAUNCH_COMMIT)
  return()
endif()
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${PROJECT_SOURCE_DIR}" describe --always --abbrev=12 --exclude=* --dirty=-changed
                  OUTPUT_VARIABLE DSLAUNCH_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
