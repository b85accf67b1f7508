# What reads image files: turbojpeg, libspng and zlib, as the target pareprop_image_libraries.

find_library(PAREPROP_TURBOJPEG turbojpeg)
find_path(PAREPROP_TURBOJPEG_HEADER turbojpeg.h)
find_library(PAREPROP_SPNG spng)
find_path(PAREPROP_SPNG_HEADER spng.h)
find_package(ZLIB QUIET)
mark_as_advanced(PAREPROP_TURBOJPEG PAREPROP_TURBOJPEG_HEADER PAREPROP_SPNG PAREPROP_SPNG_HEADER)
foreach(found IN ITEMS PAREPROP_TURBOJPEG PAREPROP_TURBOJPEG_HEADER PAREPROP_SPNG PAREPROP_SPNG_HEADER ZLIB_FOUND)
  if(NOT ${found})
    message(FATAL_ERROR "${found}: what reads image files was not found. Run 'make setup', or install "
            "turbojpeg, libspng and zlib (Debian: libturbojpeg0-dev libspng-dev zlib1g-dev)")
  endif()
endforeach()

if(NOT TARGET pareprop_image_libraries)
  add_library(pareprop_image_libraries INTERFACE)
  target_include_directories(pareprop_image_libraries SYSTEM INTERFACE
    ${PAREPROP_TURBOJPEG_HEADER} ${PAREPROP_SPNG_HEADER})
  target_link_libraries(pareprop_image_libraries INTERFACE ${PAREPROP_TURBOJPEG} ${PAREPROP_SPNG} ZLIB::ZLIB)
endif()
