# The wall between the two link closures: LibTorch's headers carry their own protobuf and fmt, so a target that
# sees both halves compiles against the wrong one. A leak fails at configure time, naming the path it took.

# dslaunch_forbid_link(TARGET PATTERN...): TARGET must not reach, directly or through others, a library whose
# name matches one of the regular expressions. Checked by dslaunch_check_closures() once all targets exist.
function(dslaunch_forbid_link target)
  set_property(GLOBAL APPEND PROPERTY DSLAUNCH_CLOSURE_TARGETS ${target})
  set_property(GLOBAL PROPERTY DSLAUNCH_CLOSURE_${target} "${ARGN}")
endfunction()

function(_dslaunch_walk root node path patterns)
  get_property(seen GLOBAL PROPERTY DSLAUNCH_CLOSURE_SEEN_${root})
  if(node IN_LIST seen)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY DSLAUNCH_CLOSURE_SEEN_${root} "${node}")
  cmake_path(GET node FILENAME name)  # a checkout may lie in a folder of any name
  foreach(pattern IN LISTS patterns)
    if(name MATCHES "${pattern}")
      message(FATAL_ERROR "The wall between launcher and trainer is broken: ${path}\n"
                          "${root} must not link anything matching '${pattern}'. The halves meet only in "
                          "proto/contract and trainer/config, which link neither's libraries.")
    endif()
  endforeach()
  if(NOT TARGET "${node}")
    return()
  endif()
  foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
    get_target_property(links "${node}" ${property})
    if(links)
      foreach(link IN LISTS links)
        string(REGEX REPLACE "^\\$<(LINK_ONLY|BUILD_INTERFACE):(.*)>$" "\\2" link "${link}")
        _dslaunch_walk(${root} "${link}" "${path} -> ${link}" "${patterns}")
      endforeach()
    endif()
  endforeach()
endfunction()

function(dslaunch_check_closures)
  get_property(targets GLOBAL PROPERTY DSLAUNCH_CLOSURE_TARGETS)
  foreach(target IN LISTS targets)
    get_property(patterns GLOBAL PROPERTY DSLAUNCH_CLOSURE_${target})
    _dslaunch_walk(${target} ${target} ${target} "${patterns}")
  endforeach()
endfunction()

# What each half must never see.
set(DSLAUNCH_LAUNCHER_FORBIDS "[Tt]orch" "libc10" "[Gg]loo" "nccl")
set(DSLAUNCH_TRAINER_FORBIDS "grpc" "protobuf" "spdlog" "fmt" "yaml" "ssh" "CLI11")
