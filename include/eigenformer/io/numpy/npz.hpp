#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/files/mapped_file.hpp"
#include "eigenformer/io/numpy/crc32.hpp"
#include "eigenformer/io/numpy/npy.hpp"
#include "eigenformer/io/numpy/zip_reader.hpp"
#include "eigenformer/io/numpy/zip_writer.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"

namespace eigenformer {

/// A file of named NumPy arrays, as numpy.savez and numpy.savez_compressed write them, mapped into memory
/// and validated. Compressed arrays need zlib (EIGENFORMER_WITH_ZLIB, which CMake sets). Tensors may outlive
/// the object: they keep the mapping alive.
///
///     const auto file = ef::NpzFile::open("arrays.npz");
///     for (const std::string& name : file.names()) use(name, file.tensor<float>(name));
class NpzFile {
 public:
  /// Element type and shape of an array.
  struct Info {
    Dtype dtype = Dtype::f32;  ///< element type in the file
    Shape shape;               ///< its dimensions
  };

  /// Opens and validates a file and all checksums; compressed arrays are decompressed to memory here. Throws
  /// IoError that names the file, the array and what was expected.
  static NpzFile open(const std::filesystem::path& path) {
    NpzFile file;
    file.path_ = path;
    const auto map = MappedFile::open(path);
    for (const detail::ZipEntry& entry : detail::ZipParser(map->bytes(), path.string()).parse()) {
      if (!entry.name.ends_with(".npy")) {
        throw IoError("npz",
                      "'" + path.string() + "' holds '" + entry.name + "', expected names that end in .npy");
      }
      file.arrays_.emplace(entry.name.substr(0, entry.name.size() - 4), file.read(map, entry));
    }
    return file;
  }

  /// The path that was opened.
  const std::filesystem::path& path() const noexcept { return path_; }

  /// The names of all arrays, without ".npy", sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, array] : arrays_) out.push_back(name);
    return out;
  }

  /// Whether there is an array of this name, without ".npy".
  bool contains(const std::string& name) const { return arrays_.count(name) > 0; }

  /// Element type and shape of an array. Throws IoError when there is none of this name.
  Info info(const std::string& name) const { return {array(name).header.dtype, array(name).header.shape}; }

  /// Returns an array as a tensor. When is_mapped(), it shares the memory of the file, or that of the
  /// decompressed data: writing to it changes memory only. Otherwise its values are converted as
  /// SafetensorsFile::tensor() does. Throws IoError when there is no such array, its type does not convert to
  /// T, or a value is out of range.
  template <class T>
  Tensor<T> tensor(const std::string& name) const {
    const Array& found = array(name);
    return detail::npy_tensor<T>(found.bytes, found.header, found.keep_alive, what(name));
  }

  /// Whether `tensor<T>()` needs no copy: the type is T, the order row-major and the data aligned. Throws
  /// IoError when there is no such array.
  template <class T>
  bool is_mapped(const std::string& name) const {
    const Array& found = array(name);
    return detail::needs_no_conversion<T>(found.header.dtype, found.bytes.subspan(found.header.begin)) &&
           (!found.header.fortran_order || found.header.shape.rank() < 2);
  }

  /// Copies an array, converted as by tensor(), into an existing tensor. Throws IoError as tensor() does, and
  /// when the shapes differ.
  template <class T>
  void read_into(const std::string& name, Tensor<T>& destination) const {
    if (array(name).header.shape != destination.shape()) {
      throw IoError("npz", what(name) + " has shape " + array(name).header.shape.str() + ", expected " +
                               destination.shape().str());
    }
    destination.copy_from(tensor<T>(name));
  }

 private:
  struct Array {
    NpyHeader header;
    std::span<std::byte> bytes;
    std::shared_ptr<void> keep_alive;
  };

  std::string what(const std::string& name) const {
    return "array '" + name + "' of '" + path_.string() + "'";
  }

  const Array& array(const std::string& name) const {
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) throw IoError("npz", "'" + path_.string() + "' has no array '" + name + "'");
    return found->second;
  }

  Array read(const std::shared_ptr<MappedFile>& map, const detail::ZipEntry& entry) const {
    const std::string name = what(entry.name.substr(0, entry.name.size() - 4));
    Array array{
        {},
        map->bytes().subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.stored)),
        map};
    if (entry.deflated) {
      const auto* zlib = detail::find_linked<detail::ZlibFunctions>();
      if (zlib == nullptr) {
        throw IoError("npz",
                      name +
                          " is compressed, and this program was built without zlib; expected an array that "
                          "numpy.savez wrote, or a program with zlib");
      }
      Tensor<std::int8_t> inflated(Shape{static_cast<index_t>(entry.size)});
      const auto bytes = std::as_writable_bytes(inflated.span());
      if (!zlib->inflate(array.bytes, bytes))
        throw IoError("npz", name + " is damaged: it does not inflate to its size");
      array.bytes = bytes;
      array.keep_alive = std::make_shared<Tensor<std::int8_t>>(inflated);
    }
    if (detail::crc32_of(array.bytes) != entry.crc)
      throw IoError("npz", name + " is damaged: its checksum does not match");
    array.header = parse_npy_header(array.bytes, name);
    return array;
  }

  std::filesystem::path path_;
  std::map<std::string, Array> arrays_;
};

/// Collects named tensors of any element types except bfloat16 and writes them to one .npz file for
/// numpy.load. Tensors are held, not copied, and stored without compression; equal contents give identical
/// files.
///
///     ef::NpzWriter().add("x", x).add("mask", mask).save("arrays.npz");
class NpzWriter {
 public:
  /// Adds a tensor. Throws ValueError for a name that is empty, longer than 1000 bytes or used twice, for
  /// bfloat16, and for a tensor whose memory was released.
  template <class T>
  NpzWriter& add(const std::string& name, const Tensor<T>& tensor) {
    detail::require_memory_to_save("npz", name, tensor);
    if (name.empty() || name.size() > 1000)
      throw ValueError("npz", "the name '" + name + "' has " + std::to_string(name.size()) +
                                  " bytes, must have 1 to 1000");
    if (!names_.insert(name).second) throw ValueError("npz", "the name '" + name + "' is used twice");
    entries_.push_back({name + ".npy", detail::npy_header(dtype_of<T>(), tensor.shape()),
                        std::as_bytes(tensor.span()), std::make_shared<Tensor<T>>(tensor)});
    return *this;
  }

  /// Writes all tensors to `path`, atomically. Throws IoError; an existing file is then unchanged.
  void save(const std::filesystem::path& path) const {
    detail::ZipWriter zip(path);
    for (const Entry& entry : entries_) zip.add(entry.name, entry.header, entry.bytes);
    zip.commit();
  }

 private:
  struct Entry {
    std::string name;
    std::string header;
    std::span<const std::byte> bytes;
    std::shared_ptr<void> tensor;
  };

  std::vector<Entry> entries_;
  std::set<std::string> names_;
};

/// Loads a module from an .npz file of its state dict, written by numpy.savez(file, **{name: tensor.numpy()
/// for name, tensor in module.state_dict().items()}), as from a safetensors file; values are always copied.
template <class M>
LoadReport load_state_dict(M& module, const NpzFile& file, LoadOptions options = {}) {
  std::vector<detail::GivenTensor> given;
  for (const std::string& name : file.names()) {
    const NpzFile::Info info = file.info(name);
    given.push_back({name, info.shape, detail::unfit_for_parameters(info.dtype)});
  }
  options.map = false;
  return detail::load_given(module, file, given, file.path(), options);
}

}  // namespace eigenformer
