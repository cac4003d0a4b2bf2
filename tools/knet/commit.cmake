# Writes KNET_COMMIT, the commit of the source, to a header, which changes only with the commit. Empty without git and
# where the source lies in another project's repository.
#     cmake -DSOURCE=… -DHEADER=… -P commit.cmake
cmake_minimum_required(VERSION 3.25)
set(commit "")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-toplevel OUTPUT_VARIABLE top
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH ${SOURCE} here)
  if(top STREQUAL here)
    execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${GIT} -C ${SOURCE} diff-index --quiet HEAD RESULT_VARIABLE changed OUTPUT_QUIET ERROR_QUIET)
    if(commit AND changed EQUAL 1)
      string(APPEND commit ", changed")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define KNET_COMMIT \"@commit@\"\n" @ONLY)
