# Installs the headers and what find_package(eigenformer) and pkg-config read, the translator where it is built, and makes packages:
# `cpack` in the build folder writes eigenformer-dev (headers and static libraries) and eigenformer-translator (the tool) as .deb files.
include(CMakePackageConfigHelpers)
set(package "${CMAKE_INSTALL_DATADIR}/cmake/eigenformer")

install(DIRECTORY include/eigenformer DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev FILES_MATCHING PATTERN "*.hpp")
install(DIRECTORY translator DESTINATION "${CMAKE_INSTALL_DATADIR}/eigenformer" COMPONENT dev FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cpp" PATTERN main.cpp EXCLUDE PATTERN tool EXCLUDE)
# Those that were built; components.cmake says what happens without them.
foreach(library compiled translator)
  if(TARGET eigenformer_${library})
    install(FILES "$<TARGET_FILE:eigenformer_${library}>" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev OPTIONAL)
  endif()
endforeach()
install(TARGETS eigenformer EXPORT eigenformer)
install(EXPORT eigenformer FILE eigenformer-targets.cmake NAMESPACE eigenformer:: DESTINATION "${package}" COMPONENT dev)
configure_package_config_file(cmake/package/eigenformer-config.cmake.in "${PROJECT_BINARY_DIR}/eigenformer-config.cmake"
                              INSTALL_DESTINATION "${package}" PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_DATADIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/eigenformer-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/eigenformer-config.cmake"
              "${PROJECT_BINARY_DIR}/eigenformer-config-version.cmake"
              cmake/eigen.cmake cmake/components.cmake cmake/kernels.cpp cmake/modules.cpp cmake/io.cpp
        DESTINATION "${package}" COMPONENT dev)
configure_file(cmake/package/eigenformer.pc.in "${PROJECT_BINARY_DIR}/eigenformer.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/eigenformer.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig" COMPONENT dev)
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/eigenformer-dev" RENAME copyright COMPONENT dev)

if(TARGET translator)
  install(TARGETS translator DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT translator)
  install(FILES translator/translator.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT translator)
  install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/eigenformer-translator" RENAME copyright COMPONENT translator)
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR DEB)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_PACKAGE_VENDOR "the eigenformer developers")
  set(CPACK_PACKAGE_CONTACT "the eigenformer developers <eigenformer@localhost>")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_DEV_PACKAGE_NAME eigenformer-dev)
  set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libeigen3-dev (>= 3.4)")
  set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "nlohmann-json3-dev, zlib1g-dev, libsentencepiece-dev, libicu-dev, libzstd-dev, libboost-dev, libopenmpi-dev")
  set(CPACK_COMPONENT_DEV_DESCRIPTION "Transformers in C++20 headers: tensors, autograd, training and decoding, on Eigen")
  set(CPACK_DEBIAN_TRANSLATOR_PACKAGE_NAME eigenformer-translator)
  set(CPACK_DEBIAN_TRANSLATOR_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_TRANSLATOR_PACKAGE_SHLIBDEPS ON)
  set(CPACK_COMPONENT_TRANSLATOR_DESCRIPTION "Trains Transformers on pairs of sentences and translates with them")
  get_cmake_property(CPACK_COMPONENTS_ALL COMPONENTS)
  list(REMOVE_ITEM CPACK_COMPONENTS_ALL Unspecified)
  include(CPack)
endif()
