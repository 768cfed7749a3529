# What `cmake --install` puts where. Components: runtime (the commands and their recipes) and sdk (headers, libraries and
# the CMake package for users' programs). The tree may be moved. It knows one place of the machine it was made on, where
# LibTorch is, and that in one link: make lib/dslaunch/libtorch a link to another one, or a copy, as you like.
include(CMakePackageConfigHelpers)

if(DSLAUNCH_LAUNCHER)
  install(TARGETS dslaunch dslaunch-agent RUNTIME DESTINATION bin COMPONENT runtime)
  foreach(folder man bash-completion zsh fish)
    install(DIRECTORY "${PROJECT_BINARY_DIR}/share/${folder}" DESTINATION share COMPONENT runtime)
  endforeach()
endif()
if(DSLAUNCH_TRAINER)
  set_target_properties(dslaunch-train PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/dslaunch/libtorch/lib")
  install(TARGETS dslaunch-train RUNTIME DESTINATION bin COMPONENT runtime)
  install(DIRECTORY trainer/recipes/ DESTINATION share/dslaunch/recipes COMPONENT runtime)

  install(DIRECTORY trainer/include/dslaunch "${PROJECT_BINARY_DIR}/trainer/include/dslaunch"
          DESTINATION include COMPONENT sdk FILES_MATCHING PATTERN "*.h")
  install(TARGETS dslaunch_trainer dslaunch_trainer_gloo dslaunch_trainer_core dslaunch_trainer_config dslaunch_trainer_base
                  dslaunch_proto_contract dslaunch_base
          ARCHIVE DESTINATION lib/dslaunch COMPONENT sdk)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/dslaunchConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES packaging/cmake/dslaunchConfig.cmake packaging/cmake/LibTorchTarget.cmake
                "${PROJECT_BINARY_DIR}/dslaunchConfigVersion.cmake"
          DESTINATION lib/cmake/dslaunch COMPONENT sdk)

  install(CODE "
    set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/dslaunch/libtorch\")
    if(IS_SYMLINK \"\${link}\" OR NOT EXISTS \"\${link}\")
      file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/dslaunch\")
      file(CREATE_LINK \"${DSLAUNCH_LIBTORCH}\" \"\${link}\" SYMBOLIC)
    endif()" ALL_COMPONENTS)
endif()
