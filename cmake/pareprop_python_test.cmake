# Tests that compare with Python packages, in the Python that torch is from: the one that was asked for
# torch, or the one whose site-packages CMAKE_PREFIX_PATH leads to. A libtorch without Python has none, and
# PAREPROP_TEST_PYTHON is empty.

set(PAREPROP_TEST_PYTHON ${PAREPROP_PYTHON})
if(NOT PAREPROP_TEST_PYTHON AND PAREPROP_LIBTORCH)
  get_filename_component(python_prefix ${PAREPROP_LIBTORCH}/../../../.. ABSOLUTE)
  find_program(PAREPROP_TORCH_PYTHON NAMES python3 PATHS ${python_prefix}/bin NO_DEFAULT_PATH)
  if(PAREPROP_TORCH_PYTHON)
    set(PAREPROP_TEST_PYTHON ${PAREPROP_TORCH_PYTHON})
  endif()
endif()

# The script gets the path of the program `target`.
function(pareprop_python_test name script target)
  add_test(NAME ${name}
    COMMAND ${PAREPROP_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${script} $<TARGET_FILE:${target}>)
  set_tests_properties(${name} PROPERTIES
    COST ${PAREPROP_LONG} LABELS numeric TIMEOUT 600 ENVIRONMENT "${PAREPROP_TEST_ENVIRONMENT}")
  if(NOT PAREPROP_PYTHON)
    # `make setup` did not make this Python, so it may lack the package: the script exits with 77 then.
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endfunction()
