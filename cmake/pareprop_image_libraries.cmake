# What reads image files: turbojpeg, stb_image (a header) and zlib, as the target pareprop_image_libraries.

find_library(PAREPROP_TURBOJPEG turbojpeg)
find_path(PAREPROP_TURBOJPEG_HEADER turbojpeg.h)
find_path(PAREPROP_STB_HEADER stb/stb_image.h)
find_package(ZLIB QUIET)
mark_as_advanced(PAREPROP_TURBOJPEG PAREPROP_TURBOJPEG_HEADER PAREPROP_STB_HEADER)
foreach(found IN ITEMS PAREPROP_TURBOJPEG PAREPROP_TURBOJPEG_HEADER PAREPROP_STB_HEADER ZLIB_FOUND)
  if(NOT ${found})
    message(FATAL_ERROR "${found}: what reads image files was not found. Run 'make setup', or install "
            "turbojpeg, stb and zlib (Debian: libturbojpeg0-dev libstb-dev zlib1g-dev)")
  endif()
endforeach()

if(NOT TARGET pareprop_image_libraries)
  add_library(pareprop_image_libraries INTERFACE)
  target_include_directories(pareprop_image_libraries SYSTEM INTERFACE
    ${PAREPROP_TURBOJPEG_HEADER} ${PAREPROP_STB_HEADER})
  target_link_libraries(pareprop_image_libraries INTERFACE ${PAREPROP_TURBOJPEG} ZLIB::ZLIB)
endif()
