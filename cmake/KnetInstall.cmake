# Install rules, the CMake package KnetC (one component per library) and a pkg-config file per library.

include(CMakePackageConfigHelpers)
foreach(part IN LISTS KNET_PARTS)
  install(TARGETS knet_${part} EXPORT KnetC
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
          FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
