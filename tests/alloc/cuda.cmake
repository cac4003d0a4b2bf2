# The tests of the cuda device over a driver that is none, so that they run on every machine.

# fake_cuda_library(<target> <folder> [definition…]): a libcuda.so.1 in a folder of its own, where nothing else is.
function(fake_cuda_library target folder)
  add_library(${target} SHARED fake_cuda.c fake_cuda_memory.c fake_cuda_streams.c)
  target_compile_definitions(${target} PRIVATE ${ARGN})
  target_include_directories(${target} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/alloc
                                              ${PROJECT_SOURCE_DIR}/alloc/include)
  target_link_libraries(${target} PRIVATE knet_options Threads::Threads)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME cuda SOVERSION 1
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${folder})
endfunction()

fake_cuda_library(fake_cuda fake_cuda)
fake_cuda_library(fake_cuda_old fake_cuda_old FAKE_CUDA_OLD)

# Linked, the fake is what dlopen("libcuda.so.1") finds: it is loaded already under that name.
knet_test(alloc.cuda SOURCES test_cuda.c LINK KnetC::alloc fake_cuda Threads::Threads)
knet_test(alloc.cuda_fault SOURCES test_cuda_fault.c LINK KnetC::alloc fake_cuda LABELS fault)
knet_test(alloc.cuda_pause SOURCES test_cuda_pause.c LINK KnetC::alloc fake_cuda LABELS unit fault)
knet_test(alloc.cuda_share SOURCES test_cuda_share.c LINK KnetC::alloc fake_cuda Threads::Threads LABELS unit fault)
knet_test(alloc.cuda_peers SOURCES test_cuda_peers.c LINK KnetC::alloc fake_cuda LABELS unit fault)
knet_test(alloc.cuda_pool SOURCES test_cuda_pool.c LINK KnetC::alloc fake_cuda Threads::Threads LABELS unit fault)

# Not linked: each test loads the driver it wants, by path.
knet_test(alloc.cuda_load SOURCES test_cuda_load.c LINK KnetC::alloc Threads::Threads ${CMAKE_DL_LIBS} LABELS unit fault)
add_dependencies(test_alloc_cuda_load fake_cuda fake_cuda_old)
target_include_directories(test_alloc_cuda_load PRIVATE ${PROJECT_SOURCE_DIR}/alloc)
target_compile_definitions(test_alloc_cuda_load PRIVATE FAKE_CUDA="$<TARGET_FILE:fake_cuda>"
                                                        FAKE_CUDA_OLD="$<TARGET_FILE:fake_cuda_old>")
