# An overlay port: installs the checkout that it is part of.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

# Headers alone, which are the same in debug and release.
set(VCPKG_BUILD_TYPE release)

# Components are found when a client asks for them, so features only bring their libraries.
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DEIGENFORMER_BUILD_TESTS=OFF -DEIGENFORMER_BUILD_BENCH=OFF -DEIGENFORMER_BUILD_EXAMPLES=OFF -DEIGENFORMER_INSTALL=ON
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/eigenformer)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
