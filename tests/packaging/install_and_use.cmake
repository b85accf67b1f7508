# cmake -DBUILD_DIR=... -DCONSUMER_DIR=... -DWORK_DIR=... ... -P install_and_use.cmake
# Nothing but the prefix is given to the consumer: what it needs must come from the package.

function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed (${result}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/prefix)

step("installing" ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

# Moved after the install: a package that only works where it was put first is not relocatable.
file(RENAME ${prefix} ${WORK_DIR}/moved)
set(configure ${CMAKE_COMMAND} -S ${CONSUMER_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
    -DCMAKE_EXE_LINKER_FLAGS=${LINKER_FLAGS} -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved)

# A libtorch of another version is refused, even though the one of the build is there.
file(WRITE ${WORK_DIR}/other/share/cmake/Torch/TorchConfigVersion.cmake "set(PACKAGE_VERSION \"2.99.0\")\n")
execute_process(COMMAND ${configure} -DTorch_DIR=${WORK_DIR}/other/share/cmake/Torch
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX REPLACE "[ \n]+" " " output "${output}")  # CMake breaks the lines of errors
if(result EQUAL 0 OR NOT output MATCHES "compiled with libtorch 2[.0-9]+, and .* libtorch 2.99.0 in ${WORK_DIR}/other")
  message(FATAL_ERROR "libtorch 2.99.0 was not refused by name (${result}):\n${output}")
endif()
file(REMOVE_RECURSE ${WORK_DIR}/build)

step("configuring the consumer" ${configure})
step("building the consumer" ${CMAKE_COMMAND} --build ${WORK_DIR}/build)
step("running the consumer" ${WORK_DIR}/build/consumer)
if(NOT output MATCHES "loss [0-9.e-]+, drift [0-9.e-]+, memory peak [1-9][0-9]* bytes\n$")
  message(FATAL_ERROR "the consumer ran, but did not print what it trained:\n${output}")
endif()
# Right gradients in four modes and with the plan, which is within 5 % of what is measured and keeps its budget; a picture.
step("running own_network" ${CMAKE_COMMAND} -E chdir ${WORK_DIR}/build ${WORK_DIR}/build/own_network)
message("${output}")
string(REGEX MATCHALL " holds\n" holds "${output}")
list(LENGTH holds holds)
if(NOT holds EQUAL 5 OR NOT output MATCHES "budget ([0-9]+), predicted ([0-9]+), measured ([0-9]+) bytes\n$")
  message(FATAL_ERROR "own_network ran, but its gradients or what it printed are wrong:\n${output}")
endif()
set(measured ${CMAKE_MATCH_3})
math(EXPR off "20 * (${CMAKE_MATCH_2} - ${measured})")
if(measured GREATER ${CMAKE_MATCH_1} OR off GREATER ${measured} OR off LESS -${measured})
  message(FATAL_ERROR "own_network does not keep its budget, or its plan is more than 5 % off:\n${output}")
endif()
file(READ ${WORK_DIR}/build/own_network.svg picture LIMIT 5)
if(NOT picture MATCHES "^<(svg|\\?xml)")
  message(FATAL_ERROR "own_network drew no picture of its steps")
endif()
if(EXISTS ${WORK_DIR}/moved/bin/pareprop)
  step("running the installed program" ${WORK_DIR}/moved/bin/pareprop --help)
endif()

foreach(name IN ITEMS pickle slowfast)  # they are run by tests of weights
  if(NOT EXISTS ${WORK_DIR}/moved/share/pareprop/convert_${name}.py)
    message(FATAL_ERROR "convert_${name}.py, which messages of the program name, was not installed")
  endif()
endforeach()

file(GLOB_RECURSE installed RELATIVE ${WORK_DIR}/moved ${WORK_DIR}/moved/*)
foreach(path IN LISTS installed)
  if(NOT path MATCHES "^(bin/pareprop$|share/pareprop/convert_[a-z]+\\.py$|include/pareprop/.*\\.h$|lib[^/]*/)")
    message(FATAL_ERROR "installed, but not meant to be: ${path}")
  endif()
endforeach()
