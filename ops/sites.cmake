# Writes knet/ops_sites.h: for every function that returns a tensor, a macro of its name that adds the call site.
# Names come from the rows and comparisons of ops.def, and from declarations "KN_API kn_tensor *kn_name(" in the headers.
#
#   cmake -DOUT=FOLDER -P ops/sites.cmake
#
# writes FOLDER/knet/ops_sites.h. Included, it does so when the build is configured, again when they change.
set(from ${CMAKE_CURRENT_LIST_DIR}/include/knet)
set(names)
file(READ ${from}/ops.def rows)
file(READ ${from}/tensor.h tensors)
file(READ ${from}/ops.h ops)
file(READ ${from}/norm.h norm)
string(APPEND ops "${norm}")
file(READ ${from}/sequence.h sequence)
file(READ ${from}/image.h image)
string(APPEND ops "${sequence}${image}")
string(REGEX MATCHALL "\nKN_(ROW[123]|RARE[12]|COMPARE1?)\\([a-z][a-z_0-9]*" rows "${rows}")
string(REGEX MATCHALL "\nKN_API kn_tensor \\*kn_[a-z_0-9]+" ops "${ops}")
string(REGEX MATCHALL "\nKN_API kn_tensor \\*kn_tensor_from" tensors "${tensors}")
foreach(match IN LISTS rows tensors ops)
  string(REGEX REPLACE ".*(\\(|\\*kn_)" "" name "${match}")
  list(APPEND names ${name})
endforeach()
list(REMOVE_ITEM names located)
set(text "/* Made from ops.def and the headers: macros that add the call site. */\n")
foreach(name IN LISTS names)
  string(APPEND text "#define kn_${name}(...) KN_LOCATED((kn_${name})(__VA_ARGS__))\n")
endforeach()
file(CONFIGURE OUTPUT ${OUT}/knet/ops_sites.h CONTENT "${text}" @ONLY)
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${from}/ops.def ${from}/ops.h ${from}/norm.h ${from}/sequence.h ${from}/image.h)
endif()
