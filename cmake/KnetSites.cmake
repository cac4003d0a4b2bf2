# Writes macros that add the call site to errors. A public header that ends with `#include <knet/sites/NAME.h>` gets such
# a file: for each of its functions that returns a status, a tensor or a layer, a macro of the function's name. A header
# that includes <knet/ops.def> gets those of the rows and comparisons in it too.
#
#   cmake -DOUT=FOLDER -P cmake/KnetSites.cmake
#
# writes FOLDER/knet/sites for all headers. A build writes them when it is configured, again when a header changes.

# A tensor that was made before the call keeps the place where it was made: these functions hand one out.
set(KNET_SITES_READ "^(grad|params_(grad|at|find)|ema_at|optim_(state_at|state_like|shard_grad|shard_state|shard_whole)|layer_(param|state_at)|call_saved|capture_out)$")

function(knet_sites_macro to macro name)
  set(${to} "${${to}}#define kn_${name}(...) ${macro}((kn_${name})(__VA_ARGS__))\n" PARENT_SCOPE)
endfunction()

# knet_sites(<folder> <header>…): the macros of the headers, in the folder; `made` in the caller's scope: their files.
function(knet_sites folder)
  set(made)
  foreach(header IN LISTS ARGN)
    get_filename_component(name ${header} NAME)
    file(READ ${header} declared)
    if(NOT declared MATCHES "<knet/sites/${name}>")
      continue()
    endif()
    set(from ${header})
    set(text "/* Made from the header: macros that add the call site. */\n")
    if(declared MATCHES "<knet/ops.def>")
      get_filename_component(beside ${header} DIRECTORY)
      list(APPEND from ${beside}/ops.def)
      file(READ ${beside}/ops.def rows)
      string(REGEX MATCHALL "\nKN_(ROW[123]|RARE[12]|VECTOR[12]|COMPARE1?)\\([a-z][a-z_0-9]*" rows "${rows}")
      foreach(row IN LISTS rows)
        string(REGEX REPLACE ".*\\(" "" row "${row}")
        knet_sites_macro(text KN_LOCATED ${row})
      endforeach()
    endif()
    string(REGEX MATCHALL "\nKN_API [^\n(]*kn_[a-z_0-9]+\\(" functions "${declared}")
    foreach(function IN LISTS functions)
      string(REGEX REPLACE ".*kn_([a-z_0-9]+)\\($" "\\1" called "${function}")
      if(called MATCHES "^located")
        continue()
      elseif(function MATCHES "KN_API KN_MUST_CHECK kn_status ")
        knet_sites_macro(text KN_LOCATED_STATUS ${called})
      elseif(function MATCHES "KN_API kn_tensor " AND NOT called MATCHES "${KNET_SITES_READ}")
        knet_sites_macro(text KN_LOCATED ${called})
      elseif(function MATCHES "KN_API ((kn_tensor|kn_layer) \\*|(const )?void \\*kn_data)")
        string(REGEX REPLACE "\nKN_API (.*) \\*kn_.*" "\\1" type "${function}")
        string(APPEND text "#define kn_${called}(...) KN_LOCATED_AS(${type}, (kn_${called})(__VA_ARGS__))\n")
      endif()
    endforeach()
    file(CONFIGURE OUTPUT ${folder}/knet/sites/${name} CONTENT "${text}" @ONLY)
    list(APPEND made ${folder}/knet/sites/${name})
    if(NOT CMAKE_SCRIPT_MODE_FILE)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${from})
    endif()
  endforeach()
  set(made ${made} PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  file(GLOB headers ${CMAKE_CURRENT_LIST_DIR}/../*/include/knet/*.h ${CMAKE_CURRENT_LIST_DIR}/../tools/train/include/knet/*.h)
  knet_sites(${OUT} ${headers})
endif()
