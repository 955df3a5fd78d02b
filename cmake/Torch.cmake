# Imported targets for the installed torch, without its own CMake package: in a CUDA wheel that one stops
# where there is no CUDA toolkit. torch is located, not imported.
#   openreg::torch         c10, torch_cpu, the headers
#   openreg::torch_python  the same and libtorch_python
# and OPENREG_TORCH_ROOT, OPENREG_TORCH_VERSION (without the "+cpu" of a local version).
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

# pyproject.toml has the pinned version: a backend is bound to the torch that it was compiled against.
file(STRINGS "${PROJECT_SOURCE_DIR}/pyproject.toml" _line REGEX "^dependencies = ")
string(REGEX REPLACE ".*\"torch==([0-9.]+)\".*" "\\1" _pinned "${_line}")

# In pip's isolated build torch is in a directory of the build's own, which this Python has on its path too.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
          "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE OPENREG_TORCH_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET RESULT_VARIABLE _status)
if(NOT _status EQUAL 0)
  message(FATAL_ERROR
    "torch_openreg is built against torch ${_pinned}, and ${Python_EXECUTABLE} has no torch: "
    "pip install torch==${_pinned}, or name another Python by -DPython_EXECUTABLE=.")
endif()
file(STRINGS "${OPENREG_TORCH_ROOT}/version.py" _line REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = '([^'+]+).*" "\\1" OPENREG_TORCH_VERSION "${_line}")
if(NOT OPENREG_TORCH_VERSION STREQUAL _pinned)
  message(FATAL_ERROR
    "torch_openreg is built against torch ${_pinned} (got ${OPENREG_TORCH_VERSION} in ${OPENREG_TORCH_ROOT}): "
    "pip install torch==${_pinned}.")
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
add_library(openreg::torch ALIAS openreg_torch)

add_library(openreg_torch_python INTERFACE)
target_link_libraries(openreg_torch_python INTERFACE openreg_torch openreg_lib_torch_python)
add_library(openreg::torch_python ALIAS openreg_torch_python)
