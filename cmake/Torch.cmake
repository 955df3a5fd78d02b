# Imported targets for a torch that is installed, without its own CMake package: in a CUDA wheel that package fails if there
# is no CUDA toolkit. torch is located, not imported.
#   openreg::torch         c10, torch_cpu, the headers
#   openreg::torch_python  the same and libtorch_python
# and OPENREG_TORCH_ROOT, OPENREG_TORCH_BUILD, as in 2.13.0+cpu, and OPENREG_TORCH_VERSION, as in 2.13.0.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

set(OPENREG_TORCH_ROOT "" CACHE PATH "The torch package to compile against (default: the interpreter's)")
option(OPENREG_ALLOW_NEWER_TORCH "Compile against a torch that is newer than those that are supported"
  $ENV{OPENREG_ALLOW_NEWER_TORCH})

# pyproject.toml says which versions are supported.
file(STRINGS "${PROJECT_SOURCE_DIR}/pyproject.toml" _line REGEX "^torch = ")
string(REGEX MATCH ">=([0-9.]+),<([0-9.]+)" _supported "${_line}")
set(_least "${CMAKE_MATCH_1}")
set(_below "${CMAKE_MATCH_2}")

set(_root "${OPENREG_TORCH_ROOT}")
if(NOT _root)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE _root OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET RESULT_VARIABLE _status)
  if(NOT _status EQUAL 0)
    message(FATAL_ERROR
      "torch_openreg is built against torch ${_supported}, and ${Python_EXECUTABLE} has no torch: "
      "install one, or name another Python by -DPython_EXECUTABLE=.")
  endif()
endif()
set(OPENREG_TORCH_ROOT "${_root}")
file(STRINGS "${OPENREG_TORCH_ROOT}/version.py" _line REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = '(.*)'.*" "\\1" OPENREG_TORCH_BUILD "${_line}")
string(REGEX MATCH "^[0-9]+[.][0-9]+[.][0-9]+" OPENREG_TORCH_VERSION "${OPENREG_TORCH_BUILD}")

set(_found "torch_openreg supports torch ${_supported} (got ${OPENREG_TORCH_VERSION} in ${OPENREG_TORCH_ROOT})")
if(OPENREG_TORCH_VERSION VERSION_LESS _least)
  message(FATAL_ERROR "${_found}: install one of those.")
elseif(OPENREG_TORCH_VERSION VERSION_GREATER_EQUAL _below)
  if(NOT OPENREG_ALLOW_NEWER_TORCH)
    message(FATAL_ERROR "${_found}: install one of those, or set OPENREG_ALLOW_NEWER_TORCH=1 to try this one.")
  endif()
  message(WARNING "${_found}: this version has not been tested.")
endif()
message(STATUS "Found torch ${OPENREG_TORCH_VERSION}: ${OPENREG_TORCH_ROOT}")

foreach(_name c10 torch_cpu torch_python)
  add_library(openreg_lib_${_name} SHARED IMPORTED)
  set_target_properties(openreg_lib_${_name} PROPERTIES
    IMPORTED_LOCATION "${OPENREG_TORCH_ROOT}/lib/lib${_name}.so")
endforeach()

add_library(openreg_torch INTERFACE)
target_include_directories(openreg_torch SYSTEM INTERFACE
  "${OPENREG_TORCH_ROOT}/include" "${OPENREG_TORCH_ROOT}/include/torch/csrc/api/include")
target_link_libraries(openreg_torch INTERFACE openreg_lib_torch_cpu openreg_lib_c10)
# Headers include the operators that they use, and not all 2,600.
target_compile_definitions(openreg_torch INTERFACE AT_PER_OPERATOR_HEADERS)
# Not used in the sources: it makes the commands differ. The headers of another torch in the same place may be older than
# what was compiled, as some package managers keep their times.
target_compile_definitions(openreg_torch INTERFACE OPENREG_TORCH_BUILD=${OPENREG_TORCH_BUILD})
add_library(openreg::torch ALIAS openreg_torch)

add_library(openreg_torch_python INTERFACE)
target_link_libraries(openreg_torch_python INTERFACE openreg_torch openreg_lib_torch_python)
add_library(openreg::torch_python ALIAS openreg_torch_python)
