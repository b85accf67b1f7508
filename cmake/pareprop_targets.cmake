# How every target of the project is made: pareprop_library() for a folder of the library,
# pareprop_test() for a test program.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# Libraries and programs alike, so that they can share one precompiled header.
add_compile_options(-fPIC)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache asks for to cache files that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_PCH_EXTSUM=true
      ${CCACHE_PROGRAM})
endif()

set(PAREPROP_WARNINGS -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wunused)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms of gcc 12 on "literal" + std::string at -O2 and above (gcc bug 105651).
  list(APPEND PAREPROP_WARNINGS -Wno-restrict)
endif()

# Most of the time of a file goes into headers and their templates, which files that are compiled together
# share. Alone is quicker for who works on one of them.
option(PAREPROP_UNITY "Compile files of tests, and those that see autograd, sixteen at a time" ON)
function(pareprop_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PAREPROP_UNITY} UNITY_BUILD_BATCH_SIZE 16)
endfunction()

# For what is compiled more often than it runs, and where little time is spent: three quarters of the time of -O3.
function(pareprop_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# pareprop_library(graph SOURCES a.cpp ... LINKS pareprop_x ...): the target pareprop_graph, known to
# others as pareprop::graph. LINKS are the arrows that CONTRIBUTING.md draws; tests/house/includes_test.py compares them,
# and finds an include that no arrow allows.
# AUTOGRAD: its files include torch's modules or autograd, which are precompiled.
function(pareprop_library name)
  cmake_parse_arguments(arg "AUTOGRAD" "" "SOURCES;LINKS" ${ARGN})
  set(target pareprop_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(pareprop::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE ${PAREPROP_WARNINGS})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PUBLIC ${arg_LINKS})
  if(arg_AUTOGRAD)
    pareprop_precompile(${target})
  endif()
  set_property(GLOBAL APPEND PROPERTY PAREPROP_LIBRARIES ${target})
endfunction()

# OpenMP's threads spin while they wait, which starves whatever else runs: here, the other tests. MKL's mode can only be
# set before its first product, so tests in which exact streams come later could not; it is for Intel's processors
# (pareprop/ops/sum_order.h): with it, others have sums that depend on the number of threads.
set(PAREPROP_TEST_ENVIRONMENT "GOMP_SPINCOUNT=2000")
if(EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo of_intel REGEX GenuineIntel LIMIT_COUNT 1)
endif()
if(of_intel)
  list(APPEND PAREPROP_TEST_ENVIRONMENT "MKL_CBWR=AUTO,STRICT")
endif()

# COST of tests: ctest begins with the longest, so that none runs alone at the end.
set(PAREPROP_LONGEST 100)
set(PAREPROP_LONG 10)

# pareprop_test(graph_tests LABEL unit SOURCES ... LINKS ...): a GoogleTest program. Each of its cases is a
# test of ctest, unless WHOLE says that the program is one: starting torch takes longer than most cases.
function(pareprop_test target)
  cmake_parse_arguments(arg "AUTOGRAD;WHOLE" "LABEL" "SOURCES;LINKS" ${ARGN})
  add_executable(${target} ${arg_SOURCES})
  if(arg_AUTOGRAD)
    pareprop_precompile(${target})
  else()
    pareprop_together(${target})
  endif()
  pareprop_compile_quickly(${target})
  target_compile_options(${target} PRIVATE ${PAREPROP_WARNINGS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE ${arg_LINKS} GTest::gtest)
  set(timeout 1200)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    set(timeout 2400)
  endif()
  if(arg_WHOLE)
    add_test(NAME ${target} COMMAND ${target})
    set_tests_properties(${target} PROPERTIES COST ${PAREPROP_LONG}
      LABELS "${arg_LABEL}" TIMEOUT ${timeout} ENVIRONMENT "${PAREPROP_TEST_ENVIRONMENT}")
  else()  # which takes no list as a property; none of these has exact streams
    gtest_discover_tests(${target} DISCOVERY_TIMEOUT 120
      PROPERTIES LABELS "${arg_LABEL}" TIMEOUT ${timeout} ENVIRONMENT GOMP_SPINCOUNT=2000)
  endif()
endfunction()

# What a source for an instruction set is compiled with.
set(PAREPROP_AVX2 -mavx2 -mfma -mf16c)
set(PAREPROP_AVX512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)

# pareprop_kernels(LIBRARY NAME SOURCE CAPABILITY FLAG..): a source of a library for an instruction set; which one runs
# is decided at run time. False alarms of gcc 12 inside its own intrinsics' headers (gcc bug 105593) are left out.
function(pareprop_kernels library object source capability)
  add_library(${object} OBJECT ${source})
  target_compile_features(${object} PRIVATE cxx_std_20)
  target_compile_options(${object} PRIVATE ${PAREPROP_WARNINGS}
    -Wno-maybe-uninitialized -Wno-uninitialized -Wno-psabi ${ARGN})
  target_compile_definitions(${object} PRIVATE CPU_CAPABILITY=${capability} CPU_CAPABILITY_${capability})
  target_include_directories(${object} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${object} PRIVATE pareprop_torch)
  target_sources(${library} PRIVATE $<TARGET_OBJECTS:${object}>)
endfunction()
