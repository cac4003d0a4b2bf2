# Lets the command print its man pages and completions into a folder. Pages of variables are made from the text that the
# variable's word "help" prints, so each word is written once.
#     cmake -DKNET="…/knet" -DOUT=… -P pages.cmake
cmake_minimum_required(VERSION 3.25)
set(ENV{LC_ALL} C.UTF-8)   # the words of the timer have other characters in other locales
unset(ENV{KNET_TIMER})
unset(ENV{AUTOGRAD_TIMER})
unset(ENV{KNET_ALLOC})

# The words of a variable, from standard error.
function(words_get out setting)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env ${setting} ${KNET} --version OUTPUT_QUIET ERROR_FILE ${out}
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT})
execute_process(COMMAND ${KNET} --page OUTPUT_VARIABLE names OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" names "${names}")
words_get(${OUT}/words.timer KNET_TIMER=help)
words_get(${OUT}/words.alloc KNET_ALLOC=help)
foreach(name IN LISTS names)
  set(input "")
  if(name MATCHES "^knet_(.*)\\.7$")
    set(input INPUT_FILE ${OUT}/words.${CMAKE_MATCH_1})
  endif()
  execute_process(COMMAND ${KNET} --page ${name} OUTPUT_FILE ${OUT}/${name} ${input} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(WRITE ${OUT}/made "${names}\n")
