# libtorch, from wherever CMAKE_PREFIX_PATH or Torch_DIR says, else from the Python of this tree.

if(NOT Torch_DIR AND NOT CMAKE_PREFIX_PATH)
  find_program(PAREPROP_PYTHON NAMES python3 PATHS ${PROJECT_SOURCE_DIR}/.venv/bin NO_DEFAULT_PATH)
  if(NOT PAREPROP_PYTHON)
    find_program(PAREPROP_PYTHON NAMES python3)
  endif()
  execute_process(
    COMMAND ${PAREPROP_PYTHON} -c "import torch; print(torch.utils.cmake_prefix_path)"
    OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND CMAKE_PREFIX_PATH ${torch_prefix})
endif()
# The wheel warns that it comes without kineto, a static library that nothing here needs.
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
find_package(Torch QUIET)
unset(CMAKE_MESSAGE_LOG_LEVEL)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "libtorch was not found. Run 'make setup', or install it with "
          "'pip install torch==2.13.0' and configure with -DCMAKE_PREFIX_PATH="
          "$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')")
endif()

# The OpenMP runtime that libtorch itself uses: a second one would have thread counts of its own.
get_filename_component(torch_library_dir ${TORCH_LIBRARY} DIRECTORY)
find_library(PAREPROP_GOMP NAMES libgomp.so.1 gomp PATHS ${torch_library_dir} NO_DEFAULT_PATH)
if(NOT PAREPROP_GOMP)
  find_library(PAREPROP_GOMP NAMES libgomp.so.1 gomp REQUIRED)
endif()

add_library(pareprop_torch INTERFACE)
add_library(pareprop::torch ALIAS pareprop_torch)
set_target_properties(pareprop_torch PROPERTIES EXPORT_NAME torch)
target_include_directories(pareprop_torch SYSTEM INTERFACE
  "$<BUILD_INTERFACE:${TORCH_INCLUDE_DIRS}>")
target_compile_options(pareprop_torch INTERFACE -fopenmp)
target_link_libraries(pareprop_torch INTERFACE
  "$<BUILD_INTERFACE:${TORCH_LIBRARIES}>" "$<BUILD_INTERFACE:${PAREPROP_GOMP}>")
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
