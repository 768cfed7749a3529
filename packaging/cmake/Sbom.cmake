# A list of other projects' code that is inside our programs, with versions, in the form of CycloneDX 1.4:
# share/dslaunch/sbom.cdx.json, in the build tree and installed. The versions are those of the system's packages, with which
# security advisories can be compared.
include_guard(GLOBAL)

# dslaunch_compiled_in(PROGRAMS program... [FILES archive...] [HEADERS header...]): what is linked or compiled into PROGRAMS.
function(dslaunch_compiled_in)
  cmake_parse_arguments(arg "" "" "PROGRAMS;FILES;HEADERS" ${ARGN})
  foreach(header IN LISTS arg_HEADERS)
    string(MAKE_C_IDENTIFIER "DSLAUNCH_H_${header}" variable)
    find_file(${variable} "${header}" REQUIRED)
    mark_as_advanced(${variable})
    list(APPEND arg_FILES "${${variable}}")
  endforeach()
  foreach(file IN LISTS arg_FILES)
    set_property(GLOBAL APPEND PROPERTY DSLAUNCH_SBOM_FILES "${file}")
    set_property(GLOBAL APPEND PROPERTY "DSLAUNCH_SBOM_PROGRAMS_${file}" ${arg_PROGRAMS})
  endforeach()
endfunction()

# _dslaunch_sbom_packages(FILE...): sets package_FILE and version_PACKAGE for the files that are of a package, and kind.
macro(_dslaunch_sbom_packages)
  find_program(DSLAUNCH_DPKG_QUERY dpkg-query)
  find_program(DSLAUNCH_RPM rpm)
  mark_as_advanced(DSLAUNCH_DPKG_QUERY DSLAUNCH_RPM)
  if(DSLAUNCH_DPKG_QUERY)
    set(kind deb)
    set(asked ${ARGN})
    set(database "")
    if(CMAKE_SYSROOT)  # with a database of its own, which names files below it
      list(TRANSFORM asked REPLACE "^${CMAKE_SYSROOT}/" "/")
      set(database "--admindir=${CMAKE_SYSROOT}/var/lib/dpkg")
    endif()
    # "libfmt-dev:amd64: /usr/include/fmt/core.h"
    execute_process(COMMAND "${DSLAUNCH_DPKG_QUERY}" ${database} -S ${asked} OUTPUT_VARIABLE owners ERROR_QUIET)
    string(REGEX MATCHALL "[^\n]+" owners "${owners}")
    foreach(line IN LISTS owners)
      if(line MATCHES "^([^:, ]+)[^ ]*: (/.*)$")
        set("package_${CMAKE_SYSROOT}${CMAKE_MATCH_2}" "${CMAKE_MATCH_1}")
      endif()
    endforeach()
    execute_process(COMMAND "${DSLAUNCH_DPKG_QUERY}" ${database} -W -f "\${Package} \${Version}\n" OUTPUT_VARIABLE versions ERROR_QUIET)
    string(REGEX MATCHALL "[^\n]+" versions "${versions}")
    foreach(line IN LISTS versions)
      if(line MATCHES "^([^ ]+) ([^ ]+)$")
        set("version_${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}")
      endif()
    endforeach()
  elseif(DSLAUNCH_RPM)
    set(kind rpm)
    foreach(file IN ITEMS ${ARGN})
      execute_process(COMMAND "${DSLAUNCH_RPM}" -qf --qf "%{NAME} %{VERSION}-%{RELEASE}" "${file}"
                      OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE failed)
      if(NOT failed AND owner MATCHES "^([^ ]+) ([^ ]+)$")
        set("package_${file}" "${CMAKE_MATCH_1}")
        set("version_${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}")
      endif()
    endforeach()
  endif()
endmacro()

function(_dslaunch_sbom_component result name version purl programs files)
  set(properties "")
  foreach(program IN LISTS programs)
    list(APPEND properties "{\"name\": \"dslaunch:program\", \"value\": \"${program}\"}")
  endforeach()
  foreach(file IN LISTS files)
    list(APPEND properties "{\"name\": \"dslaunch:file\", \"value\": \"${file}\"}")
  endforeach()
  list(JOIN properties ",\n      " properties)
  set(${result} "    {\"type\": \"library\", \"name\": \"${name}\", \"version\": \"${version}\", \"purl\": \"${purl}\", \
\"properties\": [\n      ${properties}]}" PARENT_SCOPE)
endfunction()

# Writes the list, and installs it into a folder.
function(dslaunch_write_sbom destination)
  get_property(files GLOBAL PROPERTY DSLAUNCH_SBOM_FILES)
  list(REMOVE_DUPLICATES files)
  set(distribution "linux")
  if(EXISTS /etc/os-release)
    file(STRINGS /etc/os-release id REGEX "^ID=")
    string(REGEX REPLACE "^ID=\"?([^\"]*)\"?$" "\\1" distribution "${id}")
  endif()
  _dslaunch_sbom_packages(${files})

  set(packages "")
  foreach(file IN LISTS files)
    if(NOT DEFINED "package_${file}")  # built by the user
      cmake_path(GET file STEM LAST_ONLY "package_${file}")
    endif()
    set(package "${package_${file}}")
    list(APPEND packages "${package}")
    cmake_path(GET file FILENAME name)
    list(APPEND "files_${package}" "${name}")
    get_property(programs GLOBAL PROPERTY "DSLAUNCH_SBOM_PROGRAMS_${file}")
    list(APPEND "programs_${package}" ${programs})
  endforeach()
  list(REMOVE_DUPLICATES packages)
  list(SORT packages)

  set(components "")
  foreach(package IN LISTS packages)
    set(version unknown)
    set(purl "pkg:generic/${package}")
    if(DEFINED "version_${package}")
      set(version "${version_${package}}")
      string(REPLACE "+" "%2B" purl "pkg:${kind}/${distribution}/${package}@${version}")
    endif()
    foreach(list files programs)
      list(REMOVE_DUPLICATES "${list}_${package}")
      list(SORT "${list}_${package}")
    endforeach()
    _dslaunch_sbom_component(component "${package}" "${version}" "${purl}" "${programs_${package}}" "${files_${package}}")
    list(APPEND components "${component}")
  endforeach()
  list(JOIN components ",\n" components)
  set(file "${PROJECT_BINARY_DIR}/share/dslaunch/sbom.cdx.json")
  file(CONFIGURE OUTPUT "${file}" @ONLY CONTENT [=[
{
  "bomFormat": "CycloneDX", "specVersion": "1.4", "version": 1,
  "metadata": {"component": {"type": "application", "name": "dslaunch", "version": "@PROJECT_VERSION@"}},
  "components": [
@components@
  ]
}
]=])
  install(FILES "${file}" DESTINATION "${destination}" COMPONENT runtime)
endfunction()
