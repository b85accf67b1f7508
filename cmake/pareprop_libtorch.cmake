# libtorch as an imported target that is made from its folder alone. Its own TorchConfig.cmake asks for nvcc and the
# CUDA toolkit where it was built for CUDA; nothing here needs them. The build and the installed package both use this.

# pareprop_find_libtorch(VERSION PLACES...): the first libtorch in the places. A place is the folder of libtorch, or
# share/cmake or share/cmake/Torch in it. Sets PAREPROP_LIBTORCH to the folder of libtorch, or, where the first one has
# another version, PAREPROP_OTHER_LIBTORCH to what and where it is. Both are empty if there is none.
function(pareprop_find_libtorch version)
  set(PAREPROP_LIBTORCH "" PARENT_SCOPE)
  set(PAREPROP_OTHER_LIBTORCH "" PARENT_SCOPE)
  foreach(place IN LISTS ARGN)
    string(REGEX REPLACE "/share/cmake(/Torch)?/?$" "" folder ${place})
    get_filename_component(folder ${folder} ABSOLUTE)
    if(EXISTS ${folder}/share/cmake/Torch/TorchConfigVersion.cmake)
      include(${folder}/share/cmake/Torch/TorchConfigVersion.cmake)  # sets PACKAGE_VERSION
      string(FIND "${PACKAGE_VERSION}." "${version}." at)
      if(at EQUAL 0)
        set(PAREPROP_LIBTORCH ${folder} PARENT_SCOPE)
        set(PAREPROP_LIBTORCH_VERSION ${PACKAGE_VERSION} PARENT_SCOPE)
      else()
        set(PAREPROP_OTHER_LIBTORCH "libtorch ${PACKAGE_VERSION} in ${folder}" PARENT_SCOPE)
      endif()
      return()
    endif()
  endforeach()
endfunction()

# The target pareprop::libtorch, from the folder of a libtorch.
function(pareprop_add_libtorch folder)
  foreach(name torch torch_cpu c10)
    if(NOT EXISTS ${folder}/lib/lib${name}.so)
      message(FATAL_ERROR "The libtorch in ${folder} has no lib/lib${name}.so: it is incomplete, or a build of static "
              "libraries. Install torch again")
    endif()
  endforeach()
  # No symbol comes from libtorch.so: it loads the kernels of all devices that libtorch was built for.
  set(libraries "-Wl,--push-state,--no-as-needed,\"${folder}/lib/libtorch.so\",--pop-state")
  foreach(name torch_cpu c10 torch_cuda c10_cuda)
    if(EXISTS ${folder}/lib/lib${name}.so)
      list(APPEND libraries ${folder}/lib/lib${name}.so)
    endif()
  endforeach()

  # The OpenMP runtime that libtorch itself uses: a second one would have thread counts of its own.
  if(EXISTS ${folder}/lib/libgomp.so.1)
    list(APPEND libraries ${folder}/lib/libgomp.so.1)
  else()
    find_library(PAREPROP_GOMP NAMES libgomp.so.1 gomp REQUIRED)
    mark_as_advanced(PAREPROP_GOMP)
    list(APPEND libraries ${PAREPROP_GOMP})
  endif()

  # How it was built (USE_C10D_GLOO, ...), which its headers ask.
  set(definitions)
  file(STRINGS ${folder}/share/cmake/Caffe2/Caffe2Targets.cmake lines REGEX "INTERFACE_COMPILE_DEFINITIONS \"[A-Z]")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".*\"(.*)\".*" "\\1" names "${line}")
    list(APPEND definitions ${names})
  endforeach()
  list(REMOVE_DUPLICATES definitions)

  add_library(pareprop::libtorch INTERFACE IMPORTED)
  target_include_directories(pareprop::libtorch SYSTEM INTERFACE
    ${folder}/include ${folder}/include/torch/csrc/api/include)
  target_compile_definitions(pareprop::libtorch INTERFACE ${definitions})
  target_link_libraries(pareprop::libtorch INTERFACE ${libraries})
endfunction()
