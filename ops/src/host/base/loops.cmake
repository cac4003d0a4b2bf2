# Inner loops of the host kernels, compiled for each real type and instruction set; loops.h chooses at run time.
# Sets KNET_LOOPS_OBJECTS.
set(KNET_LOOPS src/host/pointwise/row_loops.c src/host/reduce/reduce_loops.c src/host/movement/cast_loops.c
    src/host/conv/conv_loops.c src/host/conv/conv_direct_loops.c src/host/conv/conv_winograd_loops.c src/host/product/gemm_loops.c src/host/pool/window_loops.c
    src/host/softmax/softmax_loops.c src/host/norm/norm_loops.c src/host/linalg/linalg_loops.c
    src/host/recurrent/recurrent_loops.c src/host/attention/attention_loops.c src/host/attention/rotary_loops.c
    src/host/softmax/ctc_loops.c src/host/image/image_loops.c
    src/host/pointwise/link_loops.c
    src/host/random/random_loops.c src/host/optim/optim_loops.c src/host/base/loops_table.c)
# KNET_ONE_ISA: builds that tests compile on the way have one set. Threads meet in the same places whatever the set:
# ThreadSanitizer looks at one too.
set(KNET_ISAS v2)
set(KNET_LOOPS_OBJECTS)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  if(NOT KNET_SANITIZE STREQUAL thread AND NOT KNET_ONE_ISA)
    set(KNET_ISAS v2 v3 v4)
  endif()
  set(KNET_ISA_FLAGS_v2 -march=x86-64-v2)
  set(KNET_ISA_FLAGS_v3 -march=x86-64-v3)
  set(KNET_ISA_FLAGS_v4 -march=x86-64-v4 -mprefer-vector-width=512)
endif()
set_source_files_properties(src/host/product/gemm_loops.c src/host/conv/conv_direct_loops.c src/host/conv/conv_winograd_loops.c
                            src/host/recurrent/recurrent_loops.c
                            src/host/attention/attention_loops.c PROPERTIES COMPILE_OPTIONS -ffp-contract=fast)
# Every build keeps the micro-kernels' sums in registers and leaves out UBSan's check of each load: with -O1 and the checks,
# training LeNet under AddressSanitizer takes three times as long.
set_property(SOURCE src/host/product/gemm_loops.c src/host/conv/conv_direct_loops.c src/host/conv/conv_winograd_loops.c APPEND PROPERTY COMPILE_OPTIONS -O3 -fno-sanitize=undefined)
list(LENGTH KNET_ISAS n_isas)
set_source_files_properties(src/host/base/loops.c PROPERTIES COMPILE_DEFINITIONS KN_ISAS=${n_isas})
set(KNET_LOOPS_LEVEL -O3)
if(KNET_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL Debug) # -O3 takes three times as long to compile
  set(KNET_LOOPS_LEVEL -O1 -fno-ivopts) # with ivopts, gcc 12 at -O1 leaves a call of image_loops.c out
endif()
# Rare rows: once, for the lowest instruction set.
set(KNET_ISA_FLAGS_rare ${KNET_ISA_FLAGS_v2})
foreach(isa IN LISTS KNET_ISAS ITEMS rare)
  foreach(real f32 f64)
    set(loops knet_ops_loops_${real}_${isa})
    set(sources ${KNET_LOOPS})
    if(isa STREQUAL rare)
      set(sources src/host/pointwise/row_loops.c)
    endif()
    add_library(${loops} OBJECT ${sources})
    target_compile_definitions(${loops} PRIVATE KN_ISA=${isa} KN_REAL=${real} $<$<STREQUAL:${real},f32>:KN_REAL_IS_F32>
                                                $<$<STREQUAL:${isa},rare>:KN_ROW_RARE>
                                                $<$<STREQUAL:${isa},v4>:KN_ROW_SECOND_OF=v3>)
    target_compile_options(${loops} PRIVATE ${KNET_LOOPS_LEVEL} -fno-trapping-math -Wno-psabi ${KNET_ISA_FLAGS_${isa}})
    target_compile_definitions(${loops} PRIVATE KN_NO_CALL_SITES)
    target_link_libraries(${loops} PRIVATE knet_options knet_base knet_profiler knet_alloc)
    target_include_directories(${loops} PRIVATE include ${CMAKE_CURRENT_BINARY_DIR}/include src)
    if(isa STREQUAL v2 AND n_isas GREATER 1) # no test under sanitizers runs the lowest of several sets
      set_target_properties(${loops} PROPERTIES KNET_UNSANITIZED ON)
    endif()
    list(APPEND KNET_LOOPS_OBJECTS $<TARGET_OBJECTS:${loops}>)
  endforeach()
  if(isa STREQUAL rare) # integers have none
    continue()
  endif()
  # Rows and reductions of integers: type, name, limits. Overflow wraps.
  foreach(integer "int64_t i64 INT64" "int32_t i32 INT32" "uint8_t u8 UINT8")
    separate_arguments(integer)
    list(GET integer 0 type)
    list(GET integer 1 name)
    list(GET integer 2 limits)
    set(loops knet_ops_rows_${name}_${isa})
    add_library(${loops} OBJECT src/host/pointwise/row_loops.c src/host/reduce/reduce_int_loops.c)
    set(least ${limits}_MIN)
    if(name STREQUAL u8)
      set(least 0)
      target_compile_definitions(${loops} PRIVATE KN_ROW_BOOLS)
    endif()
    target_compile_definitions(${loops} PRIVATE KN_ISA=${isa} KN_REAL=f32 KN_REAL_IS_F32 KN_ROW_INTEGER=${type}
                                                KN_ROW_NAME=${name} KN_ROW_MIN=${least} KN_ROW_MAX=${limits}_MAX)
    target_compile_options(${loops} PRIVATE ${KNET_LOOPS_LEVEL} -fwrapv -Wno-psabi ${KNET_ISA_FLAGS_${isa}})
    target_compile_definitions(${loops} PRIVATE KN_NO_CALL_SITES)
    target_link_libraries(${loops} PRIVATE knet_options knet_base knet_profiler knet_alloc)
    target_include_directories(${loops} PRIVATE include ${CMAKE_CURRENT_BINARY_DIR}/include src)
    list(APPEND KNET_LOOPS_OBJECTS $<TARGET_OBJECTS:${loops}>)
  endforeach()
endforeach()
