# libtorch from where CMAKE_PREFIX_PATH or Torch_DIR say, else from Python: that of this tree, or the one in the path.

include(pareprop_libtorch)

set(libtorch_version 2.13)  # the engine uses headers that change from one version to the next

set(outside_of_build)
if(SKBUILD)
  # `pip install .`: the torch of the Python that it is for. pip hides that from a build by these two.
  set(PAREPROP_PYTHON ${Python_EXECUTABLE})
  set(outside_of_build ${CMAKE_COMMAND} -E env --unset=PYTHONPATH --unset=PYTHONNOUSERSITE)
endif()
find_program(PAREPROP_PYTHON NAMES python3 PATHS ${PROJECT_SOURCE_DIR}/.venv/bin NO_DEFAULT_PATH)
find_program(PAREPROP_PYTHON NAMES python3)
set(python_libtorch)
if(PAREPROP_PYTHON)
  execute_process(
    COMMAND ${outside_of_build} ${PAREPROP_PYTHON} -c "from importlib.util import find_spec; print(*find_spec('torch').submodule_search_locations)"
    OUTPUT_VARIABLE python_libtorch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

if(SKBUILD AND NOT python_libtorch)
  message(FATAL_ERROR "torch is not installed in ${PAREPROP_PYTHON}, and pareprop is compiled with the torch that it will "
          "run with. Install it first: pip install 'torch==${libtorch_version}.*'")
endif()
pareprop_find_libtorch(${libtorch_version} ${Torch_DIR} ${CMAKE_PREFIX_PATH})
if(NOT PAREPROP_LIBTORCH AND NOT PAREPROP_OTHER_LIBTORCH)
  string(REPLACE ":" ";" environment_prefix_path "$ENV{CMAKE_PREFIX_PATH}")
  pareprop_find_libtorch(${libtorch_version} ${python_libtorch} ${environment_prefix_path})
endif()
if(PAREPROP_OTHER_LIBTORCH)
  message(FATAL_ERROR "pareprop needs libtorch ${libtorch_version}, and this is ${PAREPROP_OTHER_LIBTORCH}. Run "
          "'make setup', or name the folder of libtorch ${libtorch_version} with -DCMAKE_PREFIX_PATH=/path/to/libtorch")
elseif(NOT PAREPROP_LIBTORCH)
  message(FATAL_ERROR "libtorch ${libtorch_version} was not found where CMAKE_PREFIX_PATH or Torch_DIR say, nor in "
          "Python (${PAREPROP_PYTHON}). Run 'make setup', or name its folder with -DCMAKE_PREFIX_PATH=/path/to/libtorch")
endif()
if(NOT PAREPROP_LIBTORCH STREQUAL python_libtorch)
  set(PAREPROP_PYTHON "")  # not the Python of this libtorch
endif()

pareprop_add_libtorch(${PAREPROP_LIBTORCH})
if(EXISTS ${PAREPROP_LIBTORCH}/lib/libtorch_cuda.so)
  message(STATUS "libtorch ${PAREPROP_LIBTORCH_VERSION} with CUDA: ${PAREPROP_LIBTORCH}")
else()
  message(STATUS "libtorch ${PAREPROP_LIBTORCH_VERSION} for CPUs: ${PAREPROP_LIBTORCH}")
endif()

add_library(pareprop_torch INTERFACE)
add_library(pareprop::torch ALIAS pareprop_torch)
set_target_properties(pareprop_torch PROPERTIES EXPORT_NAME torch)
target_compile_options(pareprop_torch INTERFACE -fopenmp)
target_link_libraries(pareprop_torch INTERFACE "$<BUILD_INTERFACE:pareprop::libtorch>")
set_property(GLOBAL APPEND PROPERTY PAREPROP_LIBRARIES pareprop_torch)

# Any file that sees torch's modules or autograd pays 15 to 20 s for their headers. Precompiled they still
# cost 8 s: gcc instantiates their templates again in every file. So the files of a target share that too.
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cpp CONTENT "")
add_library(pareprop_precompiled STATIC ${PROJECT_BINARY_DIR}/precompiled.cpp)
target_compile_features(pareprop_precompiled PUBLIC cxx_std_20)
target_compile_options(pareprop_precompiled PRIVATE ${PAREPROP_WARNINGS})
target_link_libraries(pareprop_precompiled PRIVATE pareprop_torch)
target_precompile_headers(pareprop_precompiled PRIVATE
  <torch/nn/module.h> <torch/csrc/autograd/custom_function.h> <torch/csrc/autograd/engine.h>)
if(CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # ccache then hashes this sum for each file that uses the header, and not its 580 MB: a second a file.
  set(precompiled CMakeFiles/pareprop_precompiled.dir/cmake_pch.hxx.gch)
  add_custom_command(TARGET pareprop_precompiled POST_BUILD WORKING_DIRECTORY ${PROJECT_BINARY_DIR}
    COMMAND ${CMAKE_COMMAND} -E sha256sum ${precompiled} > ${precompiled}.sum)
endif()

# For targets whose files see torch's modules or autograd.
function(pareprop_precompile target)
  target_precompile_headers(${target} REUSE_FROM pareprop_precompiled)
  pareprop_together(${target})
endfunction()
