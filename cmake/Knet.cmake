# Compile options of the whole project, and the functions that declare its libraries, tests and benchmarks.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
option(BUILD_SHARED_LIBS "Build shared libraries" ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# Everything runs from the build tree without installing: programs in bin/, libraries in lib/.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_INSTALL_RPATH "$ORIGIN;$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

add_library(knet_options INTERFACE)
target_compile_definitions(knet_options INTERFACE _GNU_SOURCE $<$<BOOL:${KNET_CHECKED}>:KN_CHECKED>)
target_compile_options(knet_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
                          $<$<BOOL:${KNET_WERROR}>:-Werror>
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
  target_compile_options(knet_options INTERFACE -fsanitize=${KNET_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(knet_options INTERFACE -fsanitize=${KNET_SANITIZE})
endif()

# knet_library(<part> SOURCES … HEADERS … [LINK …] [PRIVATE …])
# Makes libknet_<part> and the alias KnetC::<part>. HEADERS are public, in include/knet; LINK libraries are part of
# the interface (the parts to the left), PRIVATE ones are not.
set(KNET_PARTS "" CACHE INTERNAL "")
function(knet_library part)
  cmake_parse_arguments(A "" "" "SOURCES;HEADERS;LINK;PRIVATE" ${ARGN})
  set(target knet_${part})
  add_library(${target} ${A_SOURCES})
  add_library(KnetC::${part} ALIAS ${target})
  list(TRANSFORM A_HEADERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/include/)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS include FILES ${A_HEADERS})
  target_include_directories(${target} PRIVATE src)
  target_link_libraries(${target} PUBLIC ${A_LINK} PRIVATE $<BUILD_INTERFACE:knet_options> ${A_PRIVATE})
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                        EXPORT_NAME ${part} VERIFY_INTERFACE_HEADER_SETS ON)
  set(KNET_PARTS ${KNET_PARTS} ${part} CACHE INTERNAL "")
endfunction()

# knet_test(<folder>.<stem> SOURCES … [LINK …] [LABELS …] [ARGS …] [ENV …] [TIMEOUT seconds])
# One executable, one CTest test of that name. 77 means skipped.
function(knet_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;LINK;LABELS;ARGS;ENV" ${ARGN})
  string(REPLACE "." "_" target test_${name})
  add_executable(${target} ${A_SOURCES})
  target_link_libraries(${target} PRIVATE knet_options knet_test_support ${A_LINK})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${target} ${A_ARGS})
  if(NOT A_LABELS)
    set(A_LABELS unit)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 600)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT ${A_TIMEOUT}
                       ENVIRONMENT "${A_ENV}")
endfunction()

# knet_bench(<name> SOURCES … [LINK …]): a program in bench/ that prints JSON lines through bench/support/bench.h.
function(knet_bench name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_executable(bench_${name} ${A_SOURCES})
  target_link_libraries(bench_${name} PRIVATE knet_options knet_bench_support ${A_LINK})
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
endfunction()
