# .deb, .rpm and a tarball: `packaging/make-packages`, or cpack in a build folder. Packages: dslaunch, dslaunch-agents (agents for
# nodes of each machine type), dslaunch-trainer (which takes a LibTorch of the user's, as PyPI's torch) and dslaunch-dev.
set(CPACK_PACKAGE_NAME dslaunch)
set(CPACK_PACKAGE_VENDOR "The dslaunch authors")
set(CPACK_PACKAGE_CONTACT "The dslaunch authors <maintainers@dslaunch.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Launcher and trainer for several machines")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL "")
if(DSLAUNCH_LAUNCHER)
  list(APPEND CPACK_COMPONENTS_ALL runtime)
  if(DSLAUNCH_OTHER_AGENTS)
    list(APPEND CPACK_COMPONENTS_ALL agents)
  endif()
endif()
if(DSLAUNCH_TRAINER)
  list(APPEND CPACK_COMPONENTS_ALL trainer sdk)
endif()
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
"launcher of training jobs on several machines
 It starts a job over SSH or Slurm, watches it, and ends it cleanly.
 The agent that it copies to nodes is in this package.")
set(CPACK_COMPONENT_AGENTS_DESCRIPTION
"agents of dslaunch for nodes of each machine type
 With them dslaunch on an x86-64 machine starts jobs on aarch64 nodes, and
 the other way round.")
set(CPACK_COMPONENT_TRAINER_DESCRIPTION
"trainer of dslaunch, without Python
 It trains models in C++ with a LibTorch 2.11 of the user's, at
 /usr/lib/dslaunch/libtorch, which may be a link to a Python environment's.")
set(CPACK_COMPONENT_SDK_DESCRIPTION
"headers and libraries of dslaunch's trainer
 For training programs in C++, by CMake's find_package(dslaunch).")

# Of what is built for, which is not always this machine.
if(CMAKE_CROSSCOMPILING)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  set(CPACK_RPM_PACKAGE_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR})
  set(CPACK_PACKAGE_FILE_NAME "dslaunch-${PROJECT_VERSION}-Linux-${CMAKE_SYSTEM_PROCESSOR}")
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME dslaunch)
set(CPACK_DEBIAN_AGENTS_PACKAGE_NAME dslaunch-agents)
set(CPACK_DEBIAN_AGENTS_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_AGENTS_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_AGENTS_PACKAGE_DEPENDS "dslaunch (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TRAINER_PACKAGE_NAME dslaunch-trainer)
set(CPACK_DEBIAN_SDK_PACKAGE_NAME dslaunch-dev)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_TRAINER_PACKAGE_SECTION science)
set(CPACK_DEBIAN_SDK_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6 (>= ${DSLAUNCH_GLIBC_LIMIT})")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libpmix2, dslaunch-agents")  # for MPI programs, and nodes of other types
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "openssh-client")  # `ssh -G` reads ssh_config
set(CPACK_DEBIAN_TRAINER_PACKAGE_DEPENDS
    "dslaunch (= ${PROJECT_VERSION}), libc6 (>= ${DSLAUNCH_GLIBC_LIMIT}), libstdc++6 (>= 8), libgcc-s1 | libgcc1")
set(CPACK_DEBIAN_SDK_PACKAGE_DEPENDS "dslaunch-trainer (= ${PROJECT_VERSION}), zlib1g-dev, libpng-dev, libjpeg-dev")

set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE "Apache-2.0")
set(CPACK_RPM_SDK_PACKAGE_GROUP Development/Libraries)
# Nothing of the machine and the hour in which it was built.
set(CPACK_RPM_SPEC_MORE_DEFINE "%define packager ${CPACK_PACKAGE_CONTACT}
%define _buildhost dslaunch
%define use_source_date_epoch_as_buildtime 1
%define clamp_mtime_to_source_date_epoch 1
%define _binaries_in_noarch_packages_terminate_build 0")
if(CMAKE_CROSSCOMPILING)  # what this machine's strip cannot read is stripped already
  string(APPEND CPACK_RPM_SPEC_MORE_DEFINE "\n%define __os_install_post %{nil}")
endif()
set(CPACK_RPM_PACKAGE_AUTOREQ OFF)
set(CPACK_RPM_PACKAGE_AUTOPROV OFF)
set(CPACK_RPM_RUNTIME_PACKAGE_NAME dslaunch)
set(CPACK_RPM_AGENTS_PACKAGE_NAME dslaunch-agents)
set(CPACK_RPM_AGENTS_PACKAGE_ARCHITECTURE noarch)
set(CPACK_RPM_AGENTS_PACKAGE_REQUIRES "dslaunch = ${PROJECT_VERSION}")
set(CPACK_RPM_TRAINER_PACKAGE_NAME dslaunch-trainer)
set(CPACK_RPM_SDK_PACKAGE_NAME dslaunch-devel)
set(CPACK_RPM_RUNTIME_PACKAGE_REQUIRES "glibc >= ${DSLAUNCH_GLIBC_LIMIT}")
set(CPACK_RPM_TRAINER_PACKAGE_REQUIRES
    "dslaunch = ${PROJECT_VERSION}, glibc >= ${DSLAUNCH_GLIBC_LIMIT}, libstdc++ >= 8, libgcc")
set(CPACK_RPM_SDK_PACKAGE_REQUIRES "dslaunch-trainer = ${PROJECT_VERSION}, zlib-devel, libpng-devel, libjpeg-turbo-devel")
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
    /usr/share/man /usr/share/man/man1 /usr/share/bash-completion /usr/share/bash-completion/completions /usr/share/zsh
    /usr/share/zsh/site-functions /usr/share/fish /usr/share/fish/vendor_completions.d /usr/lib/cmake)

set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/packaging/cmake/PackageTree.cmake")
include(CPack)
