# The files that chain_compile.c embeds, for NVRTC.
set(KNET_CHAIN_SRC ${CMAKE_CURRENT_LIST_DIR}/../..)
set(KNET_CHAIN_TEXTS
    cuda/pointwise/chain_std.cuh cuda/pointwise/chain.cuh chain.h cuda/base/functions.cuh cuda/movement/convert.cuh
    cuda/pointwise/formulas.cuh erfcx.h needs.h polygamma.h rounded.h sigm.h ../include/knet/ops.def)
list(TRANSFORM KNET_CHAIN_TEXTS PREPEND ${KNET_CHAIN_SRC}/)
set_source_files_properties(${KNET_CHAIN_SRC}/cuda/pointwise/chain_compile.c PROPERTIES
                            OBJECT_DEPENDS "${KNET_CHAIN_TEXTS}"
                            COMPILE_DEFINITIONS "KN_CHAIN_SRC=\"${KNET_CHAIN_SRC}\"")
