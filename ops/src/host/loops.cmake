# Inner loops of the host kernels, compiled for each real type and instruction set; loops.h chooses at run time.
set(KNET_LOOPS src/host/pointwise_loops.c src/host/reduce_loops.c src/host/cast_loops.c
    src/host/conv_loops.c src/host/conv_direct_loops.c src/host/gemm_loops.c src/host/window_loops.c
    src/host/softmax_loops.c
    src/host/random_loops.c src/host/optim_loops.c src/host/loops_table.c)
set(KNET_ISAS v2)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(KNET_ISAS v2 v3 v4)
  set(KNET_ISA_FLAGS_v2 -march=x86-64-v2)
  set(KNET_ISA_FLAGS_v3 -march=x86-64-v3)
  set(KNET_ISA_FLAGS_v4 -march=x86-64-v4 -mprefer-vector-width=512)
endif()
set_source_files_properties(src/host/gemm_loops.c src/host/conv_direct_loops.c PROPERTIES COMPILE_OPTIONS -ffp-contract=fast)
set(KNET_LOOPS_LEVEL -O3)
if(KNET_SANITIZE)
  set(KNET_LOOPS_LEVEL -O1)
endif()
foreach(isa IN LISTS KNET_ISAS)
  foreach(real f32 f64)
    set(loops knet_ops_loops_${real}_${isa})
    add_library(${loops} OBJECT ${KNET_LOOPS})
    target_compile_definitions(${loops} PRIVATE KN_ISA=${isa} KN_REAL=${real} $<$<STREQUAL:${real},f32>:KN_REAL_IS_F32>)
    target_compile_options(${loops} PRIVATE ${KNET_LOOPS_LEVEL} -fno-trapping-math -Wno-psabi ${KNET_ISA_FLAGS_${isa}})
    target_link_libraries(${loops} PRIVATE knet_options)
    target_include_directories(${loops} PRIVATE src
      $<TARGET_PROPERTY:knet_ops,INTERFACE_INCLUDE_DIRECTORIES>
      $<TARGET_PROPERTY:knet_profiler,INTERFACE_INCLUDE_DIRECTORIES>
      $<TARGET_PROPERTY:knet_alloc,INTERFACE_INCLUDE_DIRECTORIES>)
    target_sources(knet_ops PRIVATE $<TARGET_OBJECTS:${loops}>)
  endforeach()
endforeach()
