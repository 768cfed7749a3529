# What `cmake --install` puts where. Components: runtime (the commands and their recipes) and sdk (headers, libraries and
# the CMake package for users' programs). The tree may be moved. Of the machine it was made on it knows where LibTorch is,
# and with CUDA where NVIDIA's libraries are, each by one link (dslaunch_link_in_tree): make lib/dslaunch/libtorch a link to
# another one, or a copy, as you like.
include(CMakePackageConfigHelpers)

dslaunch_write_sbom()
if(DSLAUNCH_LAUNCHER)
  install(TARGETS dslaunch dslaunch-agent RUNTIME DESTINATION bin COMPONENT runtime)
  foreach(folder man bash-completion zsh fish)
    install(DIRECTORY "${PROJECT_BINARY_DIR}/share/${folder}" DESTINATION share COMPONENT runtime)
  endforeach()
endif()
if(DSLAUNCH_TRAINER)
  install(TARGETS dslaunch-train RUNTIME DESTINATION bin COMPONENT runtime)
  install(DIRECTORY trainer/recipes/ DESTINATION share/dslaunch/recipes COMPONENT runtime)

  install(DIRECTORY trainer/include/dslaunch "${PROJECT_BINARY_DIR}/trainer/include/dslaunch"
          DESTINATION include COMPONENT sdk FILES_MATCHING PATTERN "*.h")
  # dslaunch::dslaunch and dslaunch::plugin are for users (dslaunchConfig.cmake); the others are what they stand on.
  set_target_properties(dslaunch_trainer PROPERTIES EXPORT_NAME dslaunch)
  set_target_properties(dslaunch_plugin PROPERTIES EXPORT_NAME plugin)
  install(TARGETS dslaunch_trainer dslaunch_plugin dslaunch_trainer_include dslaunch_trainer_gloo dslaunch_trainer_core
                  dslaunch_trainer_config dslaunch_trainer_base dslaunch_proto_contract dslaunch_base
          EXPORT dslaunch ARCHIVE DESTINATION lib/dslaunch COMPONENT sdk)
  install(EXPORT dslaunch NAMESPACE dslaunch:: FILE dslaunchTargets.cmake DESTINATION lib/cmake/dslaunch COMPONENT sdk)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/dslaunchConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES packaging/cmake/dslaunchConfig.cmake packaging/cmake/LibTorchTarget.cmake
                "${PROJECT_BINARY_DIR}/dslaunchConfigVersion.cmake"
          DESTINATION lib/cmake/dslaunch COMPONENT sdk)
endif()
