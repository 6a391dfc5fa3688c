# Finds Eigen 3.4 or newer as Eigen3::Eigen; a parent project may have made that target already.
if(NOT TARGET Eigen3::Eigen)
  # Not `find_package(Eigen3 3.4)`, which refuses the next major version.
  find_package(Eigen3 CONFIG QUIET)
  if(TARGET Eigen3::Eigen AND DEFINED Eigen3_VERSION AND Eigen3_VERSION VERSION_LESS 3.4)
    message(FATAL_ERROR "eigenformer needs Eigen 3.4 or newer; found ${Eigen3_VERSION} in ${Eigen3_DIR}")
  endif()
endif()
if(NOT TARGET Eigen3::Eigen)
  find_path(EIGENFORMER_EIGEN_INCLUDE_DIR Eigen/Core PATH_SUFFIXES eigen3)
  mark_as_advanced(EIGENFORMER_EIGEN_INCLUDE_DIR)
  if(EIGENFORMER_EIGEN_INCLUDE_DIR)
    add_library(Eigen3::Eigen INTERFACE IMPORTED GLOBAL)
    set_target_properties(Eigen3::Eigen PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
                                                   "${EIGENFORMER_EIGEN_INCLUDE_DIR}")
  else()
    message(FATAL_ERROR "eigenformer needs Eigen 3.4 or newer, which was not found. Install it (Debian and Ubuntu: "
                        "apt install libeigen3-dev; macOS: brew install eigen) or set -DEigen3_DIR=<folder of "
                        "Eigen3Config.cmake>.")
  endif()
endif()
