# openreg_target(<name>): settings that all our targets have in common. Flags are set per target, so that
# nothing leaks into code that is not ours.
find_package(Threads REQUIRED)

function(openreg_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  get_target_property(_type ${name} TYPE)
  if(_type STREQUAL "EXECUTABLE")
    # Tests run from the build tree and load torch themselves. An RPATH, unlike a RUNPATH, also holds
    # for the libraries that ours needs.
    target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  else()
    # No RPATH but $ORIGIN: torch is already loaded when our library is, and the torch of an isolated build no longer
    # exists by then.
    set_target_properties(${name} PROPERTIES
      SKIP_BUILD_RPATH ON
      INSTALL_RPATH "$ORIGIN"
      BUILD_WITH_INSTALL_RPATH ON)
  endif()
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/cpp")
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic
    $<$<BOOL:${OPENREG_WARNINGS_AS_ERRORS}>:-Werror>)
  # See base/mutex.h. The second flag checks the order of locks.
  target_compile_options(${name} PRIVATE
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Wthread-safety-beta>)
  # Without this GCC inlines no function that a library loaded earlier could replace.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${name} PRIVATE -Wno-restrict)  # wrong for "literal" + std::string (GCC bug 105651)
  endif()
  target_link_libraries(${name} PUBLIC Threads::Threads)
  if(OPENREG_SANITIZE)
    set(_sanitize -fsanitize=${OPENREG_SANITIZE} -fno-sanitize-recover=all)
    target_compile_options(${name} PUBLIC ${_sanitize} -fno-omit-frame-pointer -g)
    target_link_options(${name} PUBLIC ${_sanitize})
  endif()
endfunction()
