# The platforms on which the project, or a part of it, is built and tested. Any other stops here with one message.
option(OPENREG_UNSUPPORTED_PLATFORM "Build on platforms on which the project has never been built" OFF)

include(CheckCXXSymbolExists)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  check_cxx_symbol_exists(__GLIBC__ "features.h" OPENREG_HAVE_GLIBC)
endif()
if(NOT OPENREG_UNSUPPORTED_PLATFORM)
  if(NOT (OPENREG_HAVE_GLIBC AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|aarch64)$"))
    message(FATAL_ERROR
      "torch_openreg supports Linux with glibc on x86-64 and aarch64 (got ${CMAKE_SYSTEM_NAME} on ${CMAKE_SYSTEM_PROCESSOR}); "
      "-DOPENREG_UNSUPPORTED_PLATFORM=ON builds it anyway.")
  endif()
  if(OPENREG_BUILD_TORCH AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    message(WARNING
      "On aarch64 torch_openreg has been tested in an emulator only. Please report whether it works.")
  endif()
  if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
      OR (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14))
    message(FATAL_ERROR
      "torch_openreg needs C++20: GCC 11 or Clang 14, or later "
      "(got ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}).")
  endif()
endif()
if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  message(FATAL_ERROR "torch_openreg needs a 64-bit address space for its device windows.")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
