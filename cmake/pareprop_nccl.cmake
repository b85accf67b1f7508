# The headers with which NCCL of a libtorch can be used, as the list PAREPROP_NCCL_HEADERS of folders. It is empty where
# libtorch was built without NCCL, or headers are missing. Wheels have the parts of CUDA beside torch, in nvidia/; for
# another libtorch, or other headers, -DPAREPROP_NCCL_HEADERS="/path/to/nccl/include;/path/to/cuda/include" names them.

get_target_property(libtorch_definitions pareprop::libtorch INTERFACE_COMPILE_DEFINITIONS)
if(NOT USE_C10D_NCCL IN_LIST libtorch_definitions)
  set(PAREPROP_NCCL_HEADERS "")
  return()
endif()

if(NOT PAREPROP_NCCL_HEADERS)
  set(nccl_folder)
  set(cuda_folder)
  get_filename_component(site_packages ${PAREPROP_LIBTORCH} DIRECTORY)
  file(GLOB folders ${site_packages}/nvidia/*/include)
  foreach(folder IN LISTS folders)
    if(EXISTS ${folder}/nccl.h)
      set(nccl_folder ${folder})
    endif()
    # The runtime comes with torch. It includes the other two, which come in packages of their own.
    if(EXISTS ${folder}/cuda_runtime.h AND EXISTS ${folder}/crt/host_config.h AND EXISTS ${folder}/nv/target)
      set(cuda_folder ${folder})
    endif()
  endforeach()
  if(nccl_folder AND cuda_folder)
    set(PAREPROP_NCCL_HEADERS ${nccl_folder} ${cuda_folder})
  endif()
endif()

if(PAREPROP_NCCL_HEADERS)
  message(STATUS "NCCL of libtorch is used: ${PAREPROP_NCCL_HEADERS}")
else()
  message(STATUS "NCCL of libtorch is left out, so several processes cannot train on GPUs: nccl.h, or cuda_runtime.h "
          "with crt/host_config.h and nv/target, are not beside torch. 'make setup TORCH=cuda' brings them, or name "
          "their folders with -DPAREPROP_NCCL_HEADERS=...")
endif()
