#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "eigenformer/io/safetensors/dtype.hpp"

namespace eigenformer {

namespace detail {

/// The header of a NumPy array, in the format of numpy.lib.format, versions 1.0, 2.0 and 3.0.
struct NpyHeader {
  Dtype dtype = Dtype::f32;    ///< element type
  Shape shape;                 ///< of rank 0 to Shape::max_rank
  bool fortran_order = false;  ///< true: column-major, the first dimension varies fastest
  std::size_t begin = 0;       ///< offset of the data in bytes, from the start of the header
};

inline constexpr std::string_view npy_magic = "\x93NUMPY";

// NumPy's names of the element types, in the order of Dtype; empty for bfloat16, which it does not have.
inline constexpr std::array<std::string_view, 13> npy_types = {
    "|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "", "<f4", "<f8"};

/// Parses a header: 6 bytes of magic, 2 of version, the length of the rest (2 bytes, 4 from version 2 on),
/// and a Python dictionary such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }. bytes: header
/// and data; messages call the array `what`. Throws IoError for a damaged header, an unsupported type, and
/// data of another size.
EIGENFORMER_IO_FUNCTION NpyHeader parse_npy(std::span<const std::byte> bytes, const std::string& what);

/// Makes the header of a row-major array, padded so that the data begin at a multiple of 64 bytes.
EIGENFORMER_IO_FUNCTION std::string npy_header(Dtype dtype, const Shape& shape);

// Converts a column-major array to row-major order.
template <class T>
Tensor<T> from_fortran_order(const Tensor<T>& columns) {
  const Shape& shape = columns.shape();
  Tensor<T> out(shape);
  std::array<index_t, static_cast<std::size_t>(Shape::max_rank)> index{}, stride{};
  index_t step = 1;
  for (index_t i = 0; i < shape.rank(); ++i) {
    stride[static_cast<std::size_t>(i)] = step;
    step *= shape[i];
  }
  index_t from = 0;
  for (index_t i = 0; i < out.numel(); ++i) {
    out.data()[i] = columns.data()[from];
    for (index_t axis = shape.rank(); axis-- > 0;) {
      const auto a = static_cast<std::size_t>(axis);
      from += stride[a];
      if (++index[a] < shape[axis]) break;
      from -= stride[a] * shape[axis];
      index[a] = 0;
    }
  }
  return out;
}

/// The array in `bytes`, header and data, as SafetensorsFile::tensor() returns it; messages call it `what`.
template <class T>
Tensor<T> npy_tensor(std::span<std::byte> bytes, const NpyHeader& header, std::shared_ptr<void> keep_alive,
                     const std::string& what) {
  const Tensor<T> found = tensor_of_bytes<T>(header.dtype, bytes.subspan(header.begin), header.shape,
                                             std::move(keep_alive), "npy", what);
  return header.fortran_order && header.shape.rank() > 1 ? from_fortran_order(found) : found;
}

}  // namespace detail

/// Loads a .npy file. When the element type is T and the order row-major, the tensor shares the mapped file,
/// copy-on-write. Otherwise the values are converted: floating-point types to each other (rounding), integers
/// to wider or narrower integers. Throws IoError that names the file, also for a type that does not convert
/// and for a value that is out of range.
///
///     auto x = ef::load_npy<float>("x.npy");
template <class T>
[[nodiscard]] Tensor<T> load_npy(const std::filesystem::path& path) {
  const auto file = detail::MappedFile::open(path);
  const std::string what = "'" + path.string() + "'";
  return detail::npy_tensor<T>(file->bytes(), detail::parse_npy(file->bytes(), what), file, what);
}

/// Writes a tensor to a .npy file, atomically. Throws ValueError for bfloat16, which NumPy does not have, and
/// for a tensor whose memory was released; IoError when writing fails. An existing file is then unchanged.
template <class T>
void save_npy(const std::filesystem::path& path, const Tensor<T>& tensor) {
  detail::require_memory_to_save("npy", path.string(), tensor);
  const std::string header = detail::npy_header(detail::dtype_of<T>(), tensor.shape());
  AtomicFile file(path);
  file.write(header);
  file.write(std::as_bytes(tensor.span()));
  file.commit();
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

class NpyParser {
 public:
  NpyParser(std::span<const std::byte> bytes, const std::string& what) : bytes_(bytes), what_(what) {}

  NpyHeader parse() {
    const std::string_view all(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    if (all.substr(0, 6) != npy_magic || all.size() < 10)
      fail({"it does not begin as a NumPy array; it is truncated or in another format"});
    const int version = static_cast<unsigned char>(all[6]);
    if (version < 1 || version > 3) fail({"it has format version ", version, ", expected 1 to 3"});
    const std::size_t width = version == 1 ? 2 : 4;
    std::size_t length = 0;
    if (all.size() < 8 + width) fail({"its header is truncated"});
    std::memcpy(&length, all.data() + 8, width);
    if (length > all.size() - 8 - width)
      fail({"its header of ", length, " bytes ends outside its ", all.size(), " bytes"});
    text_ = all.substr(8 + width, length);
    NpyHeader header;
    header.begin = 8 + width + length;
    read_dictionary(header);
    std::uint64_t expected = dtype_size(header.dtype);
    for (const index_t n : header.shape) expected *= static_cast<std::uint64_t>(n);
    const std::uint64_t available = all.size() - header.begin;
    if (expected != available) {
      fail({"its data take ", available, " bytes, but ", dtype_name(header.dtype), " of shape ",
            header.shape.str(), " takes ", expected});
    }
    return header;
  }

 private:
  [[noreturn]] void fail(std::initializer_list<MessagePart> message) const {
    throw IoError("npy", {"cannot read ", what_, ": ", join(message)});
  }

  void skip_space() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
  }
  bool take(char c) { return take(std::string_view(&c, 1)); }
  void expect(char c) {
    if (!take(c)) fail({"its header lacks a '", c, "' before '", text_.substr(0, 20), "'"});
  }
  bool take(std::string_view word) {
    skip_space();
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }

  std::string read_string() {
    skip_space();
    const char quote = text_.empty() ? '\0' : text_[0];
    const std::size_t end = quote == '\'' || quote == '"' ? text_.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail({"its header lacks a string before '", text_.substr(0, 20), "'"});
    std::string found(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return found;
  }

  void read_dictionary(NpyHeader& header) {
    bool has_type = false, has_order = false, has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = read_string();
      expect(':');
      if (key == "descr" && !has_type) {
        header.dtype = read_type();
        has_type = true;
      } else if (key == "fortran_order" && !has_order) {
        header.fortran_order = take("True");
        if (!header.fortran_order && !take("False")) fail({"fortran_order must be True or False"});
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        header.shape = read_shape();
        has_shape = true;
      } else {
        fail({"its header has '", key,
              "' twice, or unexpectedly; expected descr, fortran_order and shape once each"});
      }
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (!text_.empty()) fail({"its header continues after its dictionary"});
    if (!has_type || !has_order || !has_shape) fail({"its header must have descr, fortran_order and shape"});
  }

  Dtype read_type() {
    skip_space();
    if (text_.substr(0, 1) == "[") fail({"it is a structured array, which is not supported"});
    const std::string descr = read_string();
    std::string known;
    for (std::size_t i = 0; i < npy_types.size(); ++i) {
      if (npy_types[i].empty()) continue;
      if (descr == npy_types[i]) return static_cast<Dtype>(i);
      known += (known.empty() ? "" : ", ") + std::string(npy_types[i]);
    }
    fail({"it has dtype '", descr, "', expected one of ", known});
  }

  // The product of the dimensions other than zero must be in range, too.
  Shape read_shape() {
    std::vector<index_t> dims;
    index_t product = 1;
    expect('(');
    while (!take(')')) {
      skip_space();
      index_t n = 0;
      std::size_t digits = 0;
      for (; digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9'; ++digits) {
        if (n > Shape::max_numel / 10) fail({"a dimension of its shape is too large"});
        n = 10 * n + (text_[digits] - '0');
      }
      if (digits == 0) fail({"its shape must be a tuple of non-negative integers"});
      text_.remove_prefix(digits);
      if (n > 0 && product > Shape::max_numel / n)
        fail({"its shape has more elements than any memory holds"});
      product *= n > 0 ? n : 1;
      dims.push_back(n);
      if (static_cast<index_t>(dims.size()) > Shape::max_rank)
        fail({"it has more than ", Shape::max_rank, " dimensions"});
      if (take(',')) continue;
      expect(')');
      break;
    }
    return Shape(std::span<const index_t>(dims));
  }

  std::span<const std::byte> bytes_;
  const std::string& what_;
  std::string_view text_;
};

EIGENFORMER_IO_FUNCTION NpyHeader parse_npy(std::span<const std::byte> bytes, const std::string& what) {
  return NpyParser(bytes, what).parse();
}

EIGENFORMER_IO_FUNCTION std::string npy_header(Dtype dtype, const Shape& shape) {
  const std::string descr(npy_types[static_cast<std::size_t>(dtype)]);
  if (descr.empty())
    throw ValueError("npy", {"NumPy has no type for ", dtype_name(dtype), "; convert to float"});
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape.str() + ", }";
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  const auto length = static_cast<std::uint16_t>(text.size());
  std::string header(npy_magic);
  header += '\1';
  header += '\0';
  header += static_cast<char>(length & 0xffU);
  header += static_cast<char>(length >> 8U);
  return header + text;
}

}  // namespace eigenformer::detail

#endif
