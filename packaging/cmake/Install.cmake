# What `cmake --install` puts where, and what packages are made of. Components: runtime (dslaunch and its agent), agents (agents
# for nodes of other machine types, and this one's for a dslaunch of another), trainer (dslaunch-train and its recipes) and sdk (headers, libraries and the CMake package for users' programs). The tree may be
# moved. Of the machine it was made on it knows where LibTorch is, and with CUDA where NVIDIA's libraries are, each by one
# link (dslaunch_link_in_tree): make lib/dslaunch/libtorch a link to another one, or a copy, as you like.
#
# In a wheel (pyproject.toml) programs are scripts, which pip puts into the environment's bin/, and the rest is data below
# its root, so that the environment has the same layout.
include(CMakePackageConfigHelpers)
set(bin bin)
set(root "")
if(SKBUILD)
  set(bin "${SKBUILD_SCRIPTS_DIR}")
  set(root "${SKBUILD_DATA_DIR}/")
endif()

dslaunch_write_sbom("${root}share/dslaunch")
if(DSLAUNCH_LAUNCHER)
  install(TARGETS dslaunch dslaunch-agent RUNTIME DESTINATION "${bin}" COMPONENT runtime)
  foreach(folder man bash-completion zsh fish)
    install(DIRECTORY "${PROJECT_BINARY_DIR}/share/${folder}" DESTINATION "${root}share" COMPONENT runtime)
  endforeach()
endif()

set(DSLAUNCH_OTHER_AGENTS "" CACHE STRING
    "Files dslaunch-agent of builds of this commit for other machine types (x86_64, aarch64), which nodes of these get")
if(DSLAUNCH_LAUNCHER AND DSLAUNCH_OTHER_AGENTS)
  foreach(agent IN LISTS DSLAUNCH_OTHER_AGENTS)
    file(READ "${agent}" elf_machine OFFSET 18 LIMIT 2 HEX)
    if(elf_machine STREQUAL "3e00")
      set(machine x86_64)
    elseif(elf_machine STREQUAL "b700")
      set(machine aarch64)
    else()
      message(FATAL_ERROR "DSLAUNCH_OTHER_AGENTS: ${agent} is not an agent for x86_64 or aarch64")
    endif()
    # Where dslaunch of the build tree looks, too.
    configure_file("${agent}" "${PROJECT_BINARY_DIR}/lib/dslaunch/dslaunch-agent-${machine}" COPYONLY)
    install(PROGRAMS "${PROJECT_BINARY_DIR}/lib/dslaunch/dslaunch-agent-${machine}" DESTINATION "${root}lib/dslaunch"
            COMPONENT agents)
  endforeach()
  install(PROGRAMS $<TARGET_FILE:dslaunch-agent> DESTINATION "${root}lib/dslaunch" COMPONENT agents
          RENAME dslaunch-agent-${CMAKE_SYSTEM_PROCESSOR})
endif()

if(DSLAUNCH_TRAINER)
  install(TARGETS dslaunch-train RUNTIME DESTINATION "${bin}" COMPONENT trainer)
  install(DIRECTORY trainer/recipes/ DESTINATION "${root}share/dslaunch/recipes" COMPONENT trainer)
  if(TARGET dslaunch_cuda)
    install(TARGETS dslaunch_cuda LIBRARY DESTINATION "${root}lib/dslaunch" COMPONENT trainer)
  endif()

  install(DIRECTORY trainer/include/dslaunch "${PROJECT_BINARY_DIR}/trainer/include/dslaunch"
          DESTINATION include COMPONENT sdk FILES_MATCHING PATTERN "*.h")
  # dslaunch::dslaunch and dslaunch::plugin are for users (dslaunchConfig.cmake); the others are what they stand on.
  set_target_properties(dslaunch_trainer PROPERTIES EXPORT_NAME dslaunch)
  set_target_properties(dslaunch_plugin PROPERTIES EXPORT_NAME plugin)
  install(TARGETS dslaunch_trainer dslaunch_plugin dslaunch_trainer_include dslaunch_trainer_gloo dslaunch_trainer_core
                  dslaunch_trainer_config dslaunch_trainer_config_json dslaunch_trainer_mesh dslaunch_trainer_base
                  dslaunch_proto_contract dslaunch_base dslaunch_base_text dslaunch_base_os dslaunch_base_pickle
          EXPORT dslaunch ARCHIVE DESTINATION lib/dslaunch COMPONENT sdk)
  install(EXPORT dslaunch NAMESPACE dslaunch:: FILE dslaunchTargets.cmake DESTINATION lib/cmake/dslaunch COMPONENT sdk)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/dslaunchConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES packaging/cmake/dslaunchConfig.cmake packaging/cmake/LibTorchTarget.cmake packaging/cmake/LibTorchVersion.cmake
                "${PROJECT_BINARY_DIR}/dslaunchConfigVersion.cmake"
          DESTINATION lib/cmake/dslaunch COMPONENT sdk)
endif()
