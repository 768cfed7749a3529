# Run by CPack on the trees that it is about to pack: what a package has besides what `cmake --install` makes, and has not.
cmake_policy(VERSION 3.25)
set(authors "The dslaunch authors")
file(GLOB_RECURSE paths LIST_DIRECTORIES true "${CPACK_TEMPORARY_DIRECTORY}/*")
foreach(path IN LISTS paths)
  # To folders of the machine that it was built on.
  if(IS_SYMLINK "${path}" AND path MATCHES "/lib/dslaunch/(libtorch|nvidia)$")
    file(REMOVE "${path}")
  endif()
  if(path MATCHES "/man/man1/[a-z-]+\\.1$")
    execute_process(COMMAND gzip -9n "${path}" COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
foreach(component_package "runtime dslaunch" "agents dslaunch-agents" "trainer dslaunch-trainer" "sdk dslaunch-dev")
  string(REPLACE " " ";" component_package "${component_package}")
  list(GET component_package 0 component)
  list(GET component_package 1 package)
  file(GLOB trees "${CPACK_TEMPORARY_DIRECTORY}/${component}/usr" "${CPACK_TEMPORARY_DIRECTORY}/*-${component}/usr")
  foreach(tree IN LISTS trees)
    # A folder that held only a link.
    foreach(folder lib/dslaunch lib)
      file(GLOB inside "${tree}/${folder}/*")
      if(inside STREQUAL "" AND IS_DIRECTORY "${tree}/${folder}")
        file(REMOVE_RECURSE "${tree}/${folder}")
      endif()
    endforeach()
    if(NOT CPACK_GENERATOR STREQUAL "DEB")
      continue()
    endif()
    set(doc "${tree}/share/doc/${package}")
    file(WRITE "${doc}/copyright" "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: dslaunch

Files: *
Copyright: 2026 ${authors}
License: Apache-2.0
 On Debian systems the text of the license is in /usr/share/common-licenses/Apache-2.0.
 /usr/share/dslaunch/sbom.cdx.json lists the libraries of others inside the programs.
")
    file(WRITE "${doc}/changelog" "\
dslaunch (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * See CHANGELOG.md of the source.

 -- ${CPACK_PACKAGE_CONTACT}  Thu, 01 Jan 2026 00:00:00 +0000
")
    execute_process(COMMAND gzip -9nf "${doc}/changelog" COMMAND_ERROR_IS_FATAL ANY)
    # What lintian finds and what is so on purpose.
    if(component STREQUAL "runtime")
      file(WRITE "${tree}/share/lintian/overrides/dslaunch" "\
# The agent is copied to nodes that may have no library of the same version, or none.
dslaunch: embedded-library * [usr/bin/dslaunch-agent]
dslaunch: shared-library-lacks-prerequisites [usr/bin/dslaunch-agent]
# One program for every distribution. /usr/share/dslaunch/sbom.cdx.json has the version, to compare advisories with.
dslaunch: embedded-library zlib [usr/bin/dslaunch]
# Words of OpenSSL's, or bytes that are none.
dslaunch: spelling-error-in-binary *
# Started by dslaunch, not by hand.
dslaunch: no-manual-page [usr/bin/dslaunch-agent]
")
    elseif(component STREQUAL "agents")
      file(WRITE "${tree}/share/lintian/overrides/dslaunch-agents" "\
# They are copied to nodes that may have no library of the same version, or none. They run there, not here.
dslaunch-agents: embedded-library * [usr/lib/dslaunch/*]
dslaunch-agents: shared-library-lacks-prerequisites [usr/lib/dslaunch/*]
dslaunch-agents: arch-independent-package-contains-binary-or-object [usr/lib/dslaunch/*]
dslaunch-agents: spelling-error-in-binary *
")
    elseif(component STREQUAL "trainer")
      file(WRITE "${tree}/share/lintian/overrides/dslaunch-trainer" "\
# One program for every distribution. /usr/share/dslaunch/sbom.cdx.json has the version, to compare advisories with.
dslaunch-trainer: embedded-library zlib [usr/bin/dslaunch-train]
dslaunch-trainer: embedded-library libpng [usr/bin/dslaunch-train]
dslaunch-trainer: embedded-library libjpeg [usr/bin/dslaunch-train]
# Bytes that are no words.
dslaunch-trainer: spelling-error-in-binary *
# Its stamp must be readable where its symbols are not to be had: with another LibTorch (packaging/cmake/Hardening.cmake).
dslaunch-trainer: hardening-no-bindnow [usr/lib/dslaunch/libdslaunch_cuda.so]
# Started by dslaunch; its options are in dslaunch's page.
dslaunch-trainer: no-manual-page [usr/bin/dslaunch-train]
")
    else()
      file(WRITE "${tree}/share/lintian/overrides/dslaunch-dev" "\
# A stack trace of a user's program has lines then.
dslaunch-dev: unstripped-static-library *
")
    endif()
  endforeach()
endforeach()
