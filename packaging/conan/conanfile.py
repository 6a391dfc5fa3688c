import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir


class EigenformerConan(ConanFile):
    """The checkout that this recipe is part of, as a package of headers; see packaging/README.md."""

    name = "eigenformer"
    description = "The Transformer in C++20 headers: tensors, autograd, training and decoding, on Eigen"
    license = "MIT"
    topics = ("transformer", "machine-translation", "eigen", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "io": [True, False],
        "icu": [True, False],
        "zstd": [True, False],
        "server": [True, False],
        "mpi": [True, False],
        # Requires nothing of Conan's: CMake finds Eigen and the components' libraries on the system.
        "system_libraries": [True, False],
    }
    default_options = {"io": True, "icu": False, "zstd": False, "server": False, "mpi": False, "system_libraries": False}
    no_copy_source = True

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._root, "include", "eigenformer", "version.hpp"))
        parts = re.findall(r"#define EIGENFORMER_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text)
        self.version = ".".join(parts)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "translator/*"):
            copy(self, pattern, src=self._root, dst=self.export_sources_folder)

    def layout(self):
        cmake_layout(self, src_folder=".")

    def configure(self):
        if self.options.server:
            self.options.io = True

    def requirements(self):
        if self.options.system_libraries:
            return
        self.requires("eigen/3.4.0")
        if self.options.io:
            self.requires("nlohmann_json/3.11.3")
            self.requires("zlib/[>=1.2.11 <2]")
        if self.options.icu:
            self.requires("icu/74.1")
        if self.options.zstd:
            self.requires("zstd/1.5.5")
        if self.options.server:
            self.requires("boost/1.84.0", options={"header_only": True})
        if self.options.mpi:
            self.requires("openmpi/4.1.0")

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for name in ("TESTS", "BENCH", "EXAMPLES"):
            toolchain.cache_variables[f"EIGENFORMER_BUILD_{name}"] = False
        toolchain.cache_variables["EIGENFORMER_INSTALL"] = True
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        rmdir(self, os.path.join(self.package_folder, "share", "doc"))

    def package_info(self):
        # The package's own eigenformer-config.cmake makes the components' targets.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "eigenformer")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.get_safe("os") in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
