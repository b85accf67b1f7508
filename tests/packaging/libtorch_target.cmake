# cmake -DPROJECT_DIR=... -DWORK_DIR=... -P libtorch_target.cmake
# The target pareprop::libtorch, made from folders that look like those of wheels.

file(REMOVE_RECURSE ${WORK_DIR})

function(make_files)
  foreach(path IN LISTS ARGN)
    file(WRITE ${path} "")
  endforeach()
endfunction()

# A torch for the CPU in WORK_DIR/NAME/torch.
function(make_wheel name version)
  set(torch ${WORK_DIR}/${name}/torch)
  make_files(${torch}/lib/libtorch.so ${torch}/lib/libtorch_cpu.so ${torch}/lib/libc10.so ${torch}/lib/libgomp.so.1)
  file(WRITE ${torch}/share/cmake/Torch/TorchConfigVersion.cmake "set(PACKAGE_VERSION \"${version}\")\n")
  # It asks for the toolkit where torch was built with CUDA: nothing may read it.
  file(WRITE ${torch}/share/cmake/Torch/TorchConfig.cmake "message(FATAL_ERROR \"TorchConfig.cmake was read\")\n")
  file(WRITE ${torch}/share/cmake/Caffe2/Caffe2Targets.cmake
       "set_target_properties(torch_cpu PROPERTIES\n  INTERFACE_COMPILE_DEFINITIONS \"USE_DISTRIBUTED;USE_C10D_GLOO\"\n)\n"
       "  INTERFACE_COMPILE_DEFINITIONS \"\\\$<TARGET_PROPERTY:torch_cpu,INTERFACE_COMPILE_DEFINITIONS>\"\n")
endfunction()

# What makes it one for CUDA.
function(add_cuda name)
  set(torch ${WORK_DIR}/${name}/torch)
  make_files(${torch}/lib/libtorch_cuda.so ${torch}/lib/libc10_cuda.so)
  file(APPEND ${torch}/share/cmake/Caffe2/Caffe2Targets.cmake
       "set_target_properties(torch_cuda PROPERTIES\n  INTERFACE_COMPILE_DEFINITIONS \"USE_C10D_NCCL\"\n)\n")
  make_files(${WORK_DIR}/${name}/nvidia/nccl/include/nccl.h ${WORK_DIR}/${name}/nvidia/cu13/include/cuda_runtime.h)
endfunction()

# Configures with the places, and puts what it says into `output`.
function(configure)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/libtorch -B ${WORK_DIR}/build -DMODULES=${PROJECT_DIR}/cmake
            "-DPLACES=${ARGN}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(result ${result} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect text)
  string(REGEX REPLACE "[ \n]+" " " words "${output}")  # CMake breaks the lines of errors
  string(FIND "${words}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "expected '${text}' in\n${output}")
  endif()
endfunction()

make_wheel(cpu 2.13.0)
set(torch ${WORK_DIR}/cpu/torch)
foreach(place ${torch} ${torch}/share/cmake ${torch}/share/cmake/ ${torch}/share/cmake/Torch)
  configure(${WORK_DIR}/nothing ${place})
  expect("folder [${torch}] other []")
endforeach()
set(libtorch "-Wl,--push-state,--no-as-needed,\"${torch}/lib/libtorch.so\",--pop-state")
expect("LINK_LIBRARIES [${libtorch};${torch}/lib/libtorch_cpu.so;${torch}/lib/libc10.so;${torch}/lib/libgomp.so.1]")
expect("INCLUDE_DIRECTORIES [${torch}/include;${torch}/include/torch/csrc/api/include]")
expect("COMPILE_DEFINITIONS [USE_DISTRIBUTED;USE_C10D_GLOO]")
expect("nccl []")

# The headers that torch brings are not enough for NCCL.
make_wheel(cuda 2.13.1)
add_cuda(cuda)
set(torch ${WORK_DIR}/cuda/torch)
configure(${torch})
expect("libc10.so;${torch}/lib/libtorch_cuda.so;${torch}/lib/libc10_cuda.so;")
expect("COMPILE_DEFINITIONS [USE_DISTRIBUTED;USE_C10D_GLOO;USE_C10D_NCCL]")
expect("NCCL of libtorch is left out")
expect("nccl []")
set(nvidia ${WORK_DIR}/cuda/nvidia)
make_files(${nvidia}/cu13/include/crt/host_config.h ${nvidia}/cu13/include/nv/target)
configure(${torch})
expect("nccl [${nvidia}/nccl/include;${nvidia}/cu13/include]")

# 2.1 is not 2.13, nor is 2.130. The first libtorch counts.
foreach(version 2.14.1 2.1.3 2.130.0)
  make_wheel(other ${version})
  configure(${WORK_DIR}/other/torch ${torch})
  expect("folder [] other [libtorch ${version} in ${WORK_DIR}/other/torch]")
endforeach()
configure(${WORK_DIR}/nothing)
expect("folder [] other []")

file(REMOVE ${torch}/lib/libtorch_cpu.so)
configure(${torch})
expect("has no lib/libtorch_cpu.so")
if(result EQUAL 0)
  message(FATAL_ERROR "an incomplete libtorch was taken:\n${output}")
endif()

# What the project itself says.
function(configure_project)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${PROJECT_DIR} -B ${WORK_DIR}/project -G ${GENERATOR}
            -DCMAKE_CXX_COMPILER=${CXX_COMPILER} ${ARGN}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(output "${output}" PARENT_SCOPE)
  if(result EQUAL 0)
    message(FATAL_ERROR "the project was configured:\n${output}")
  endif()
endfunction()

make_wheel(other 2.14.1)
configure_project(-DCMAKE_PREFIX_PATH=${WORK_DIR}/other/torch)
expect("pareprop needs libtorch 2.13, and this is libtorch 2.14.1 in ${WORK_DIR}/other/torch.")
configure_project(-DCMAKE_PREFIX_PATH=${WORK_DIR}/nothing -DPAREPROP_PYTHON=${WORK_DIR}/nothing/bin/python3)
expect("libtorch 2.13 was not found")
