# Installs the headers and what find_package(eigenformer) reads.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package "${CMAKE_INSTALL_DATADIR}/cmake/eigenformer")

install(DIRECTORY include/eigenformer DESTINATION include FILES_MATCHING PATTERN "*.hpp")
install(TARGETS eigenformer EXPORT eigenformer)
install(EXPORT eigenformer FILE eigenformer-targets.cmake NAMESPACE eigenformer:: DESTINATION "${package}")
configure_package_config_file(cmake/eigenformer-config.cmake.in "${PROJECT_BINARY_DIR}/eigenformer-config.cmake"
                              INSTALL_DESTINATION "${package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/eigenformer-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/eigenformer-config.cmake"
              "${PROJECT_BINARY_DIR}/eigenformer-config-version.cmake"
              cmake/eigen.cmake cmake/components.cmake cmake/kernels.cpp cmake/modules.cpp
        DESTINATION "${package}")
