# Which headers are compiled once.
find_package(nlohmann_json 3.10 REQUIRED)
dslaunch_precompiled(dslaunch_precompiled_std HEADER std.h LINK nlohmann_json::nlohmann_json)
if(DSLAUNCH_TESTS)
  dslaunch_precompiled(dslaunch_precompiled_test HEADER test.h
                       LINK nlohmann_json::nlohmann_json GTest::gmock OPTIONS ${DSLAUNCH_TEST_OPTIONS})
endif()
if(DSLAUNCH_LAUNCHER)
  dslaunch_precompiled(dslaunch_precompiled_rpc HEADER rpc.h
                       LINK nlohmann_json::nlohmann_json dslaunch_grpc dslaunch_asio)
  if(DSLAUNCH_TESTS)
    dslaunch_precompiled(dslaunch_precompiled_rpc_test HEADER rpc_test.h
                         LINK nlohmann_json::nlohmann_json dslaunch_grpc dslaunch_asio GTest::gmock
                         OPTIONS ${DSLAUNCH_TEST_OPTIONS})
  endif()
endif()
if(DSLAUNCH_TRAINER AND DSLAUNCH_TESTS)
  dslaunch_precompiled(dslaunch_precompiled_torch_test HEADER torch_test.h
                       LINK dslaunch_trainer GTest::gmock OPTIONS ${DSLAUNCH_TEST_OPTIONS})
endif()
