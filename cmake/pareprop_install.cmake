# What `cmake --install` gives to other projects: headers, libraries, the program, and a package for
# find_package(pareprop) with the target pareprop::pareprop, which links everything.

include(CMakePackageConfigHelpers)

get_property(pareprop_libraries GLOBAL PROPERTY PAREPROP_LIBRARIES)

add_library(pareprop_pareprop INTERFACE)
add_library(pareprop::pareprop ALIAS pareprop_pareprop)
set_target_properties(pareprop_pareprop PROPERTIES EXPORT_NAME pareprop)
target_link_libraries(pareprop_pareprop INTERFACE ${pareprop_libraries})

set(pareprop_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pareprop)

install(TARGETS ${pareprop_libraries} pareprop_pareprop EXPORT pareprop-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT pareprop-targets NAMESPACE pareprop:: DESTINATION ${pareprop_package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/pareprop DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/pareprop-config.cmake.in
  ${PROJECT_BINARY_DIR}/pareprop-config.cmake
  INSTALL_DESTINATION ${pareprop_package_dir}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/pareprop-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pareprop-config.cmake
              ${PROJECT_BINARY_DIR}/pareprop-config-version.cmake
              ${CMAKE_CURRENT_LIST_DIR}/pareprop_libtorch.cmake
        DESTINATION ${pareprop_package_dir})

# Converters of weights, for a Python that has torch; in a wheel they are modules of the package.
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/convert_pickle.py
                 ${PROJECT_SOURCE_DIR}/tools/convert_slowfast.py
        DESTINATION ${CMAKE_INSTALL_DATADIR}/pareprop)

# The program is added later than the libraries. CMake would leave libtorch's folder out of its run
# path where that is .venv, inside the source tree.
function(pareprop_install_program)
  if(TARGET pareprop_program AND NOT SKBUILD)
    set_target_properties(pareprop_program PROPERTIES INSTALL_RPATH ${PAREPROP_LIBTORCH}/lib)
    install(TARGETS pareprop_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endfunction()
cmake_language(DEFER CALL pareprop_install_program)
