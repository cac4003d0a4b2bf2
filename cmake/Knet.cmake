# Compile options of the whole project, and the functions that declare its libraries, tests and benchmarks.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# In another project, what it builds itself stays as it was: knet_options optimises where it has no build type.
if(NOT PROJECT_IS_TOP_LEVEL)
  if(NOT DEFINED BUILD_SHARED_LIBS)
    set(BUILD_SHARED_LIBS ON)
  endif()
else()
  option(BUILD_SHARED_LIBS "Build shared libraries" ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
endif()
# Everything runs from the build tree without installing: programs in bin/, libraries in lib/.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_INSTALL_RPATH "$ORIGIN;$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

# KNET_WANTED: the parts to build, checked.
set(parts alloc profiler ops autograd comm tools)
string(REPLACE "," ";" KNET_WANTED "${KNET_PARTS}")
if(KNET_PARTS MATCHES "^(all|alloc,profiler,ops,autograd,tools)$") # the list: in caches of older builds
  set(KNET_WANTED ${parts})
endif()
list(LENGTH KNET_WANTED n_wanted)
list(SUBLIST parts 0 ${n_wanted} parts)
if(NOT KNET_WANTED OR NOT KNET_WANTED STREQUAL parts)
  message(FATAL_ERROR "KNET_PARTS is \"${KNET_PARTS}\", but must be all, or the first parts of "
                      "alloc,profiler,ops,autograd,comm,tools: each needs those before it.")
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# KNET_CHECKED as a number; ON is 1.
if(NOT KNET_CHECKED MATCHES "^[0-3]$")
  string(TOUPPER "${KNET_CHECKED}" word)
  if(word MATCHES "^(ON|YES|TRUE)$")
    set(KNET_CHECKED 1)
  elseif(word MATCHES "^(OFF|NO|FALSE|)$")
    set(KNET_CHECKED 0)
  else()
    message(FATAL_ERROR "KNET_CHECKED is \"${KNET_CHECKED}\", but must be 0, 1, 2 or 3.")
  endif()
endif()

add_library(knet_options INTERFACE)
target_compile_definitions(knet_options INTERFACE _GNU_SOURCE KN_CHECKED=${KNET_CHECKED})
target_compile_options(knet_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
                          $<$<BOOL:${KNET_WERROR}>:-Werror> $<$<CONFIG:>:-O3>
                          -fno-math-errno -ffp-contract=off -fno-semantic-interposition>)
# Of clang: constants are enums, next to doubles too; an `inline` definition whose header declares it without is external.
include(CheckCCompilerFlag)
foreach(warning enum-float-conversion static-in-inline)
  check_c_compiler_flag(-W${warning} KNET_HAS_W_${warning})
  if(KNET_HAS_W_${warning})
    target_compile_options(knet_options INTERFACE $<$<COMPILE_LANGUAGE:C>:-Wno-${warning}>)
  endif()
endforeach()
if(KNET_SANITIZE)
  # What gcc knows of values is less with the checks in between: these warnings are left to other builds.
  target_compile_options(knet_options INTERFACE -fno-omit-frame-pointer -fno-sanitize-recover=all
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:KNET_UNSANITIZED>>>:-fsanitize=${KNET_SANITIZE}>
    $<$<COMPILE_LANG_AND_ID:C,GNU>:-Wno-format-truncation -Wno-maybe-uninitialized>)
  target_link_options(knet_options INTERFACE -fsanitize=${KNET_SANITIZE})
endif()

# Lines of the libraries alone: counts of test programs that end by a signal would be damaged.
set(KNET_COUNTED "")
if(KNET_COVERAGE)
  set(KNET_COUNTED --coverage -fprofile-update=atomic)
  target_link_options(knet_options INTERFACE --coverage)
  add_custom_target(coverage COMMAND ${PROJECT_SOURCE_DIR}/tests/coverage.sh ${PROJECT_BINARY_DIR} USES_TERMINAL)
endif()

# knet_install(…): install(…), where KNET_INSTALL is on.
function(knet_install)
  if(KNET_INSTALL)
    install(${ARGV})
  endif()
endfunction()

# knet_library(<part> SOURCES … HEADERS … [LINK …] [PRIVATE …] [STATIC …] [SYSTEM …] [OBJECTS …])
# Makes libknet_<part> and the alias KnetC::<part>. HEADERS are public, in include/knet, and so are the macros made from
# them (KnetSites.cmake), in ${SITES}; LINK libraries are part of the interface (the parts to the left), PRIVATE ones are
# not; STATIC ones are our own, linked into the library and hidden in it; SYSTEM are folders of foreign headers; OBJECTS
# are compiled elsewhere.
# Each file is compiled once, for the target knet_<part>_objects, which takes compile options. knet_<part>_inside is
# the same library with its private functions in reach, for tests and benchmarks.
set(KNET_BUILT "" CACHE INTERNAL "")
function(knet_library part)
  cmake_parse_arguments(A "" "" "SOURCES;HEADERS;LINK;PRIVATE;STATIC;SYSTEM;OBJECTS" ${ARGN})
  set(target knet_${part})
  list(TRANSFORM A_HEADERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/include/)
  set(SITES ${CMAKE_CURRENT_BINARY_DIR}/include)
  knet_sites(${SITES} ${A_HEADERS}) # sets made
  set(private_folder .)
  if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/src)
    set(private_folder src)
  endif()
  add_library(${target}_objects OBJECT ${A_SOURCES})
  target_compile_options(${target}_objects PRIVATE ${KNET_COUNTED})
  target_compile_definitions(${target}_objects PRIVATE KN_NO_CALL_SITES) # errors name the line of the library's user
  target_include_directories(${target}_objects PRIVATE include ${SITES} ${private_folder})
  target_include_directories(${target}_objects SYSTEM PRIVATE ${A_SYSTEM})
  target_link_libraries(${target}_objects PRIVATE knet_options ${A_LINK} ${A_STATIC} ${A_PRIVATE})

  set(objects $<TARGET_OBJECTS:${target}_objects> ${A_OBJECTS})
  add_library(${target} ${objects})
  add_library(KnetC::${part} ALIAS ${target})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS include ${SITES} FILES ${A_HEADERS} ${made})
  target_link_libraries(${target} PUBLIC ${A_LINK} PRIVATE $<BUILD_INTERFACE:knet_options> ${A_STATIC} ${A_PRIVATE})
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                        EXPORT_NAME ${part} LINKER_LANGUAGE C VERIFY_INTERFACE_HEADER_SETS ON)
  if(BUILD_SHARED_LIBS)
    set(map ${PROJECT_SOURCE_DIR}/cmake/knet.map)
    target_link_options(${target} PRIVATE LINKER:--version-script=${map})
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
  endif()
  set(KNET_BUILT ${KNET_BUILT} ${part} CACHE INTERNAL "")

  add_library(${target}_inside STATIC EXCLUDE_FROM_ALL ${objects})
  target_include_directories(${target}_inside PUBLIC include ${SITES} ${private_folder})
  target_include_directories(${target}_inside SYSTEM PUBLIC ${A_SYSTEM})
  target_link_libraries(${target}_inside PUBLIC ${A_LINK} ${A_STATIC} ${A_PRIVATE} PRIVATE knet_options)
  set_target_properties(${target}_inside PROPERTIES LINKER_LANGUAGE C)
endfunction()

# knet_static(<name> <part> SOURCES … INCLUDE … [LINK …] [PRIVATE …])
# Our own code that several libraries link and hide. It's installed, as a part of <part>, where libraries are static.
function(knet_static name part)
  cmake_parse_arguments(A "" "" "SOURCES;INCLUDE;LINK;PRIVATE" ${ARGN})
  set(target knet_${name})
  add_library(${target} STATIC ${A_SOURCES})
  target_compile_options(${target} PRIVATE ${KNET_COUNTED})
  target_compile_definitions(${target} PRIVATE KN_NO_CALL_SITES)
  list(TRANSFORM A_INCLUDE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${A_INCLUDE}>)
  target_link_libraries(${target} PUBLIC ${A_LINK} PRIVATE $<BUILD_INTERFACE:knet_options> ${A_PRIVATE})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY KNET_STATIC_${part} ${target})
endfunction()

# knet_test(<folder>.<stem> [THREADS] SOURCES … [LINK …] [LABELS …] [ARGS …] [ENV …] [TIMEOUT seconds])
# One executable, one CTest test of that name. 77 means skipped. THREADS: it runs in several threads, which is seen where
# a source starts them itself. ThreadSanitizer's preset builds and runs the tests with that label alone.
function(knet_test name)
  cmake_parse_arguments(A "THREADS" "TIMEOUT" "SOURCES;LINK;LABELS;ARGS;ENV" ${ARGN})
  string(REPLACE "." "_" target test_${name})
  add_executable(${target} ${A_SOURCES})
  target_link_libraries(${target} PRIVATE knet_options knet_test_support ${A_LINK})
  # What tests call is optimised; they themselves compile in half the time so.
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1 -g1>)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${target} ${A_ARGS})
  if(NOT A_LABELS)
    set(A_LABELS unit)
  endif()
  foreach(source IN LISTS A_SOURCES)
    if(NOT source MATCHES "^\\$<") # objects of another target
      file(STRINGS ${source} starts REGEX "pthread_create\\(" LIMIT_COUNT 1)
      if(starts)
        set(A_THREADS TRUE)
      endif()
    endif()
  endforeach()
  if(A_THREADS)
    list(APPEND A_LABELS threads)
  elseif(KNET_SANITIZE STREQUAL thread)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 600)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT ${A_TIMEOUT}
                       ENVIRONMENT "${A_ENV}")
endfunction()

# knet_test_threads(<test>…): tests by script whose programs run in several threads.
function(knet_test_threads)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS threads)
endfunction()

# knet_bench(<name> SOURCES … [LINK …]): a program in bench/ that prints JSON lines through bench/support/bench.h.
function(knet_bench name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_executable(bench_${name} ${A_SOURCES})
  target_link_libraries(bench_${name} PRIVATE knet_options knet_bench_support ${A_LINK})
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
endfunction()
