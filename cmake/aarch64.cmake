# Cross-compiles for 64-bit Arm on Debian and runs the programs under qemu-user:
#
#     tools/install-deps.sh aarch64
#     cmake -B build/aarch64 --toolchain cmake/aarch64.cmake -DKNET_PARTS=alloc,profiler
#
# KNET_SYSROOT: the root of an arm64 system whose libraries are used in place of Debian's own for arm64.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
if(NOT EXISTS /lib/ld-linux-aarch64.so.1)   # a loader and a C library of different versions don't work together
  list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -L /usr/aarch64-linux-gnu)
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES KNET_SYSROOT)

set(ENV{PKG_CONFIG_PATH} "")
set(ENV{PKG_CONFIG_LIBDIR} "${KNET_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig")
if(KNET_SYSROOT)
  set(ENV{PKG_CONFIG_SYSROOT_DIR} "${KNET_SYSROOT}")
  set(CMAKE_FIND_ROOT_PATH ${KNET_SYSROOT})
  list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -E "LD_LIBRARY_PATH=${KNET_SYSROOT}/usr/lib/aarch64-linux-gnu")
endif()
