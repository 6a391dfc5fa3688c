#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/core/tensor.hpp"
#include "eigenformer/io/atomic_file.hpp"
#include "eigenformer/io/mapped_file.hpp"
#include "eigenformer/io/safetensors_format.hpp"

namespace eigenformer {

namespace detail {

/// An IEEE 754 half-precision number as float: exact, subnormals, infinities and NaN included.
inline float half_to_float(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t rest = half & 0x7fffU;
  if (rest >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (rest & 0x3ffU) << 13U);
  // Placed in a float's bits, a half is too small by 2^112; the product is exact, also for subnormal halves.
  const float magnitude = std::bit_cast<float>(rest << 13U) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

struct Half {
  std::uint16_t bits;
};

/// Calls f with a value of the C++ type that a file's elements have.
template <class F>
void visit_dtype(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::boolean:
    case Dtype::u8:
      return f(std::uint8_t{});
    case Dtype::i8:
      return f(std::int8_t{});
    case Dtype::i16:
      return f(std::int16_t{});
    case Dtype::i32:
      return f(std::int32_t{});
    case Dtype::i64:
      return f(std::int64_t{});
    case Dtype::f16:
      return f(Half{});
    case Dtype::bf16:
      return f(bfloat16{});
    case Dtype::f32:
      return f(float{});
    case Dtype::f64:
      return f(double{});
  }
}

template <class T>
inline constexpr bool is_float_like = std::is_floating_point_v<T> || std::is_same_v<T, bfloat16>;

}  // namespace detail

/// A safetensors file, mapped into memory and checked. Tensors may outlive the object: they keep the mapping.
///
/// ```cpp
/// const auto file = SafetensorsFile::open("model.safetensors");
/// for (const std::string& name : file.names()) use(name, file.tensor<float>(name));
/// ```
class SafetensorsFile {
 public:
  /// Opens and checks a file. Throws IoError naming the file, the tensor and what was expected.
  static SafetensorsFile open(const std::filesystem::path& path) {
    SafetensorsFile file;
    file.path_ = path;
    file.map_ = MappedFile::open(path);
    file.header_ = parse_safetensors_header(file.map_->bytes(), path.string());
    for (std::size_t i = 0; i < file.header_.tensors.size(); ++i)
      file.index_[file.header_.tensors[i].name] = i;
    return file;
  }

  const std::filesystem::path& path() const noexcept { return path_; }

  /// All tensors in the order of their data in the file.
  const std::vector<TensorInfo>& infos() const noexcept { return header_.tensors; }

  /// The names of all tensors, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, position] : index_) out.push_back(name);
    return out;
  }

  bool contains(const std::string& name) const { return index_.count(name) > 0; }

  /// Element type, shape and place of a tensor. Throws IoError when there is none of this name.
  const TensorInfo& info(const std::string& name) const {
    const auto found = index_.find(name);
    if (found == index_.end()) {
      throw IoError("safetensors", "'" + path_.string() + "' has no tensor '" + name + "'");
    }
    return header_.tensors[found->second];
  }

  const std::map<std::string, std::string>& metadata() const noexcept { return header_.metadata; }

  /// The bytes of a tensor as they are in the file.
  std::span<const std::byte> bytes(const std::string& name) const { return view(info(name)); }

  /// A tensor of the file. Without a copy where the element type is T and the data are aligned for it: such a
  /// tensor shares the mapping, and writing to it changes memory only. Otherwise the values are converted:
  /// floating-point types into each other (rounding), integers into wider or narrower integers. Throws
  /// IoError when there is no such tensor, it is of another kind, or a value does not fit T.
  template <class T>
  Tensor<T> tensor(const std::string& name) const {
    const TensorInfo& found = info(name);
    std::byte* data = map_->bytes().data() + found.begin;
    if (found.dtype == dtype_of<T>() && reinterpret_cast<std::uintptr_t>(data) % alignof(T) == 0 &&
        found.bytes > 0) {
      check_booleans<T>(found);
      return Tensor<T>::borrow(reinterpret_cast<T*>(data), found.shape, map_);
    }
    Tensor<T> out(found.shape);
    convert(found, out.data());
    return out;
  }

  /// Copies a tensor of the file, converted as tensor() does, into one that exists. Throws IoError also when
  /// the shapes differ.
  template <class T>
  void read_into(const std::string& name, Tensor<T>& destination) const {
    const TensorInfo& found = info(name);
    if (found.shape != destination.shape()) {
      throw IoError("safetensors", "tensor '" + name + "' of '" + path_.string() + "' has shape " +
                                       found.shape.str() + ", expected " + destination.shape().str());
    }
    convert(found, destination.data());
  }

 private:
  std::span<const std::byte> view(const TensorInfo& found) const {
    return map_->bytes().subspan(static_cast<std::size_t>(found.begin),
                                 static_cast<std::size_t>(found.bytes));
  }

  [[noreturn]] void fail(const TensorInfo& found, const std::string& message) const {
    throw IoError("safetensors", "tensor '" + found.name + "' of '" + path_.string() + "' " + message);
  }

  // A bool whose byte is neither 0 nor 1 would be undefined behaviour.
  template <class T>
  void check_booleans(const TensorInfo& found) const {
    if constexpr (std::is_same_v<T, bool>) {
      for (const std::byte b : view(found)) {
        if (b > std::byte{1})
          fail(found, "has a byte " + std::to_string(std::to_integer<int>(b)) + " as a BOOL");
      }
    }
  }

  template <class T>
  void convert(const TensorInfo& found, T* out) const {
    const std::span<const std::byte> from = view(found);
    if (found.dtype == dtype_of<T>()) {
      check_booleans<T>(found);
      if (!from.empty()) std::memcpy(static_cast<void*>(out), from.data(), from.size());
      return;
    }
    detail::visit_dtype(found.dtype, [&](auto example) {
      using From = decltype(example);
      for (std::size_t i = 0; i * sizeof(From) < from.size(); ++i) {
        From value;
        std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
        out[i] = convert_value<T>(found, value);
      }
    });
  }

  template <class T, class From>
  T convert_value(const TensorInfo& found, From value) const {
    if constexpr (std::is_same_v<From, detail::Half>) {
      return convert_value<T>(found, detail::half_to_float(value.bits));
    } else if constexpr (detail::is_float_like<From> && detail::is_float_like<T>) {
      if constexpr (std::is_same_v<From, bfloat16>) {
        return static_cast<T>(static_cast<float>(value));
      } else if constexpr (std::is_same_v<T, bfloat16>) {
        return T(static_cast<float>(value));
      } else {
        return static_cast<T>(value);
      }
    } else if constexpr (std::is_integral_v<From> && std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (found.dtype != Dtype::boolean) {
        const auto wide = static_cast<std::int64_t>(value);
        if (wide < static_cast<std::int64_t>(std::numeric_limits<T>::min()) ||
            wide > static_cast<std::int64_t>(std::numeric_limits<T>::max())) {
          fail(found, "holds " + std::to_string(wide) + ", which does not fit " + dtype_name(dtype_of<T>()));
        }
        return static_cast<T>(value);
      }
    }
    fail(found, std::string("has dtype ") + dtype_name(found.dtype) + ", which does not convert to " +
                    dtype_name(dtype_of<T>()));
  }

  std::filesystem::path path_;
  std::shared_ptr<MappedFile> map_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t> index_;
};

/// Collects named tensors of any element types and writes them to one file.
///
/// The tensors are held, not copied. The data begin 64 bytes aligned, larger element types first, so that
/// everything can be mapped; equal contents give equal files, byte by byte.
///
/// ```cpp
/// SafetensorsWriter writer;
/// writer.add("weight", weight).add("mask", mask).set_metadata("format", "pt");
/// writer.save("out.safetensors");
/// ```
class SafetensorsWriter {
 public:
  /// Adds a tensor. Throws ValueError for a name used twice, "__metadata__", or one that is not UTF-8, and for a
  /// tensor whose memory was given back.
  template <class T>
  SafetensorsWriter& add(const std::string& name, const Tensor<T>& tensor) {
    const std::string quoted = quote(name);
    if (name == "__metadata__") throw ValueError("safetensors", "a tensor cannot be named '__metadata__'");
    if (!tensor.defined() && tensor.numel() > 0) {
      throw ValueError("safetensors", "the memory of tensor '" + name + "' was given back; it cannot be saved");
    }
    if (!names_.insert(name).second) throw ValueError("safetensors", "the name '" + name + "' is used twice");
    std::string shape;
    for (const index_t n : tensor.shape()) shape += (shape.empty() ? "" : ",") + std::to_string(n);
    entries_.push_back(
        {quoted + ":{\"dtype\":\"" + dtype_name(dtype_of<T>()) + "\",\"shape\":[" + shape + "]",
         std::as_bytes(tensor.span()), std::make_shared<Tensor<T>>(tensor), sizeof(T)});
    return *this;
  }

  /// Sets a metadata text. Throws ValueError for what is not UTF-8.
  SafetensorsWriter& set_metadata(const std::string& key, const std::string& value) {
    metadata_[quote(key)] = quote(value);
    return *this;
  }

  /// Writes everything to `path`, atomically (see AtomicFile). Throws IoError; an existing file is then
  /// unchanged.
  void save(const std::filesystem::path& path) const {
    std::vector<const Entry*> order;
    for (const Entry& entry : entries_) order.push_back(&entry);
    std::stable_sort(order.begin(), order.end(),
                     [](const Entry* a, const Entry* b) { return a->element_size > b->element_size; });
    const std::string text = header(order);
    if (text.size() > SafetensorsHeader::max_length) {
      throw IoError("safetensors", "the names and metadata take " + std::to_string(text.size()) +
                                       " bytes, at most " + std::to_string(SafetensorsHeader::max_length) +
                                       " are allowed");
    }
    AtomicFile file(path);
    const std::uint64_t length = text.size();
    file.write(std::as_bytes(std::span<const std::uint64_t>(&length, 1)));
    file.write(text);
    for (const Entry* entry : order) file.write(entry->bytes);
    file.commit();
  }

 private:
  struct Entry {
    std::string json;  // up to the offsets, which depend on the order of the data
    std::span<const std::byte> bytes;
    std::shared_ptr<void> tensor;
    std::size_t element_size;
  };

  static std::string quote(const std::string& text) {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      throw ValueError("safetensors", "names and metadata must be valid UTF-8");
    }
  }

  std::string header(const std::vector<const Entry*>& order) const {
    std::string text = "{";
    if (!metadata_.empty()) {
      std::string pairs;
      for (const auto& [key, value] : metadata_) pairs += (pairs.empty() ? "" : ",") + key + ":" + value;
      text += "\"__metadata__\":{" + pairs + "}";
    }
    std::uint64_t offset = 0;
    for (const Entry* entry : order) {
      if (text.size() > 1) text += ',';
      const std::uint64_t end = offset + entry->bytes.size();
      text += entry->json + ",\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(end) + "]}";
      offset = end;
    }
    text += '}';
    text.append((64 - (8 + text.size()) % 64) % 64, ' ');
    return text;
  }

  std::vector<Entry> entries_;
  std::set<std::string> names_;
  std::map<std::string, std::string> metadata_;
};

/// Writes named tensors of one element type to a safetensors file, atomically. Throws ValueError for a bad
/// name and IoError; an existing file is then unchanged.
template <class T>
void save_safetensors(const std::filesystem::path& path,
                      const std::vector<std::pair<std::string, Tensor<T>>>& tensors,
                      const std::map<std::string, std::string>& metadata = {}) {
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : tensors) writer.add(name, tensor);
  for (const auto& [key, value] : metadata) writer.set_metadata(key, value);
  writer.save(path);
}

}  // namespace eigenformer
