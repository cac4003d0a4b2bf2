# Install rules, the CMake package KnetC (one component per library) and a pkg-config file per library.

include(CMakePackageConfigHelpers)
set(knet_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/KnetC)

# Each library is an export set of its own, so that a component loads it and what it needs, and nothing else.
set(knet_needs_alloc "")
set(knet_needs_profiler alloc)
set(knet_needs_ops profiler)
set(knet_needs_autograd ops)
set(knet_needs_comm autograd)
set(knet_needs_train comm)
set(knet_text_alloc "caching, stream-ordered allocator for GPUs and the host")
set(knet_text_profiler "timing tree of CPU and GPU time and memory")
set(knet_text_ops "tensors and deep-learning operators on the CPU and on CUDA")
set(knet_text_autograd "tape, gradients, parameters, optimisers")
set(knet_text_comm "ranks over MPI, and data-parallel training")
set(knet_text_train "data, models, training loop")

# What a program that links them statically links besides.
set(knet_libs_alloc -lknet_base -lm -lpthread -ldl)
set(knet_libs_profiler -lknet_report -lknet_base)
set(knet_libs_ops -ldnnl -lgomp -lz)
string(REPLACE "PNG" -lpng knet_libs_train "${KNET_PICTURES}")
string(REPLACE "JPEG" -ljpeg knet_libs_train "${knet_libs_train}")

file(RELATIVE_PATH knet_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(part IN LISTS KNET_BUILT)
  set(component ${part})   # of the packages that KnetPackage.cmake makes
  if(part STREQUAL train)
    set(component tools)
  endif()
  install(TARGETS knet_${part} EXPORT KnetC-${part}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} NAMELINK_COMPONENT dev
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
          FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
  set(LIBS_STATIC "")
  if(NOT BUILD_SHARED_LIBS)
    list(JOIN knet_libs_${part} " " LIBS_STATIC)
    get_property(inside GLOBAL PROPERTY KNET_STATIC_${part})
    if(inside)
      install(TARGETS ${inside} EXPORT KnetC-${part} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
    endif()
  endif()
  install(EXPORT KnetC-${part} NAMESPACE KnetC:: DESTINATION ${knet_cmake_dir} COMPONENT dev)
  set(PART ${part})
  set(DESCRIPTION "${knet_text_${part}}")
  set(REQUIRES "")
  if(knet_needs_${part})
    set(REQUIRES "knetc-${knet_needs_${part}}")
  endif()
  configure_file(cmake/knetc.pc.in ${PROJECT_BINARY_DIR}/knetc-${part}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/knetc-${part}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endforeach()

configure_package_config_file(cmake/KnetCConfig.cmake.in ${PROJECT_BINARY_DIR}/KnetCConfig.cmake
                              INSTALL_DESTINATION ${knet_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/KnetCConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/KnetCConfig.cmake ${PROJECT_BINARY_DIR}/KnetCConfigVersion.cmake
        DESTINATION ${knet_cmake_dir} COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/knetc COMPONENT alloc)
