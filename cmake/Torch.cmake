# Imported targets for the installed torch, without its own CMake package: in a CUDA wheel that one stops
# where there is no CUDA toolkit. torch is located, not imported.
#   openreg::torch         c10, torch_cpu, the headers
#   openreg::torch_python  the same and libtorch_python
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
          "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE OPENREG_TORCH_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET RESULT_VARIABLE _status)
if(NOT _status EQUAL 0)
  message(FATAL_ERROR "torch is not installed for ${Python_EXECUTABLE}; torch_openreg is built against torch==2.13.0.")
endif()

set(_include "${OPENREG_TORCH_ROOT}/include")
foreach(_name c10 torch_cpu torch torch_python)
  add_library(openreg_lib_${_name} SHARED IMPORTED)
  set_target_properties(openreg_lib_${_name} PROPERTIES
    IMPORTED_LOCATION "${OPENREG_TORCH_ROOT}/lib/lib${_name}.so"
    IMPORTED_NO_SONAME OFF)
endforeach()

add_library(openreg_torch INTERFACE)
target_include_directories(openreg_torch SYSTEM INTERFACE "${_include}" "${_include}/torch/csrc/api/include")
target_link_libraries(openreg_torch INTERFACE openreg_lib_torch_cpu openreg_lib_c10)
add_library(openreg::torch ALIAS openreg_torch)

add_library(openreg_torch_python INTERFACE)
target_link_libraries(openreg_torch_python INTERFACE openreg_torch openreg_lib_torch_python)
add_library(openreg::torch_python ALIAS openreg_torch_python)
